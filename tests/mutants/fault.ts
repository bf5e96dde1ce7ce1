/** One change of a source file: `find` stands in it exactly once, and `plant` takes its place. */
export interface Edit {
  /** Relative to the root of the repository. */
  readonly file: string;
  readonly find: string;
  readonly plant: string;
}

/** A fault that somebody could make, and the tests that must notice it. */
export interface Fault {
  /** Names it on the command line. */
  readonly name: string;
  /** What a Brain or a host with it does. */
  readonly what: string;
  /** Made together. Guards in the code that would notice the fault first are taken out with it: the tests have to. */
  readonly edits: readonly Edit[];
  readonly suite: {
    /** Relative to the root of the repository. */
    readonly file: string;
    /** Part of a test's full name, its describes before it, or of the names of several. Without it the whole file is run. */
    readonly test?: string;
  };
}

/** The text with one edit made. @throws when what it replaces is not there exactly once */
export function planted(text: string, { file, find, plant }: Edit): string {
  const places = text.split(find).length - 1;
  if (find === "" || places !== 1) {
    throw new Error(`${file} has ${places} places that read ${JSON.stringify(find)}, not one; write the edit anew for what is there now`);
  }
  // A function, since a text may have dollar signs.
  return text.replace(find, () => plant);
}
