/** A map that forgets what was used longest ago once it holds more than `maxEntries` or more than `maxWeight`. */
export class Lru<Value> {
  readonly #entries = new Map<string, { readonly value: Value; readonly weight: number }>();
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  #weight = 0;

  constructor(maxEntries: number, maxWeight = Number.POSITIVE_INFINITY) {
    this.#maxEntries = maxEntries;
    this.#maxWeight = maxWeight;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  /** Gives the keys forgotten for it; `key` itself when it alone is too heavy. */
  set(key: string, value: Value, weight = 1): string[] {
    this.delete(key);
    this.#entries.set(key, { value, weight });
    this.#weight += weight;
    const forgotten: string[] = [];
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#maxEntries && this.#weight <= this.#maxWeight) break;
      this.delete(oldest);
      forgotten.push(oldest);
    }
    return forgotten;
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    this.#weight -= entry.weight;
  }
}
