/**
 * A bounded queue that takes turns between sources, so that what one source has waiting delays another by one turn
 * at most. When it is full, the source with the most waiting loses its newest item.
 */
export class FairQueue<Item> {
  /** In turn order; a source without items is absent. */
  readonly #sources = new Map<string, { item: Item; weight: number }[]>();
  readonly #maxItems: number;
  readonly #maxWeight: number;
  #items = 0;
  #weight = 0;

  constructor(maxItems: number, maxWeight: number) {
    this.#maxItems = maxItems;
    this.#maxWeight = maxWeight;
  }

  get size(): number {
    return this.#items;
  }

  /** Gives the items that had to go, which may include the one put in. */
  put(source: string, item: Item, weight: number): Item[] {
    const waiting = this.#sources.get(source);
    if (waiting === undefined) this.#sources.set(source, [{ item, weight }]);
    else waiting.push({ item, weight });
    this.#items++;
    this.#weight += weight;
    const dropped: Item[] = [];
    while (this.#items > 0 && (this.#items > this.#maxItems || this.#weight > this.#maxWeight)) dropped.push(this.#dropNewest());
    return dropped;
  }

  /** The oldest item of the source whose turn it is. */
  take(): Item | undefined {
    for (const [source, waiting] of this.#sources) {
      const first = waiting.shift();
      this.#sources.delete(source);
      if (first === undefined) continue;
      if (waiting.length > 0) this.#sources.set(source, waiting);
      this.#items--;
      this.#weight -= first.weight;
      return first.item;
    }
    return undefined;
  }

  /** Takes out all that a source has waiting, oldest first. */
  takeAll(source: string): Item[] {
    const waiting = this.#sources.get(source) ?? [];
    this.#sources.delete(source);
    for (const { weight } of waiting) {
      this.#items--;
      this.#weight -= weight;
    }
    return waiting.map(({ item }) => item);
  }

  /** Empties it. */
  drain(): Item[] {
    return [...this.#sources.keys()].flatMap((source) => this.takeAll(source));
  }

  #dropNewest(): Item {
    let heaviest: [string, { item: Item; weight: number }[]] | undefined;
    let most = -1;
    for (const entry of this.#sources) {
      const weight = entry[1].reduce((sum, { weight }) => sum + weight, 0) / this.#maxWeight + entry[1].length / this.#maxItems;
      if (weight > most) {
        most = weight;
        heaviest = entry;
      }
    }
    const newest = heaviest?.[1].pop();
    if (heaviest === undefined || newest === undefined) throw new Error("a full queue holds nothing");
    if (heaviest[1].length === 0) this.#sources.delete(heaviest[0]);
    this.#items--;
    this.#weight -= newest.weight;
    return newest.item;
  }
}
