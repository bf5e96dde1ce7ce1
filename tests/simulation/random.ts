/** The one source of chance: a seed gives the same numbers everywhere and always. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** At least 0, below 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** A whole number from `least` to `most`, both included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  /** A span whose mean is `mean`, most of them shorter. */
  span(mean: number): number {
    return Math.ceil(-Math.log(1 - this.next()) * mean);
  }

  pick<T>(choices: readonly T[]): T {
    const choice = choices[Math.floor(this.next() * choices.length)];
    if (choice === undefined) throw new Error("there is nothing to pick from");
    return choice;
  }

  /** One of the choices, each as likely as its weight says. */
  weighted<T>(choices: readonly (readonly [weight: number, choice: T])[]): T {
    let left = this.next() * choices.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, choice] of choices) {
      left -= weight;
      if (left < 0) return choice;
    }
    const last = choices.at(-1);
    if (last === undefined) throw new Error("there is nothing to pick from");
    return last[1];
  }
}

/** The seed of one part of a run, as different from its neighbours' as chance is. */
export function seedOf(seed: number, part: number): number {
  return Math.floor(new Random((seed ^ Math.imul(part + 1, 0x9e3779b1)) >>> 0).next() * 4294967296) >>> 0;
}
