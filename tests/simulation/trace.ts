/** What happened, in order: always as a hash, and as text when it is to be read. */
export class Trace {
  readonly #lines: string[] | undefined;
  readonly #now: () => number;
  readonly #names = new Map<string, string>();
  #hash = 0x811c9dc5;

  constructor(now: () => number, keep: boolean) {
    this.#now = now;
    this.#lines = keep ? [] : undefined;
  }

  /** Gives what has a random id a name that is the same in every run. */
  rename(id: string, name: string): void {
    this.#names.set(id, name);
  }

  /** The name of a session, a host or an instance; of a call, when its sequence is given. */
  name(id: string, callSequence?: number): string {
    const name = this.#names.get(id) ?? id;
    return callSequence === undefined ? name : `${name}/${callSequence}`;
  }

  note(what: string): void {
    let hash = Math.imul(this.#hash ^ Math.floor(this.#now()), 0x01000193);
    for (let index = 0; index < what.length; index++) hash = Math.imul(hash ^ what.charCodeAt(index), 0x01000193);
    this.#hash = hash;
    this.#lines?.push(`${this.#now().toFixed(0).padStart(9)} ms  ${what} `);
  }

  get hash(): string {
    return (this.#hash >>> 0).toString(16).padStart(8, "0");
  }

  /** The lines that name one of the words (all of them when there are none), the last `most`. */
  about(words: readonly string[], most: number): string[] {
    const named = (line: string): boolean => words.length === 0 || words.some((word) => line.includes(` ${word} `));
    return (this.#lines ?? []).filter(named).slice(-most);
  }
}
