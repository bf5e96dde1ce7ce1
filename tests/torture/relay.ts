/**
 * A TCP relay between a peer and Brain that treats connections as bad networks do.
 *
 * 1. Bytes of one direction of one connection arrive in order, or not at all; none is changed or made up.
 * 2. Frozen, it carries nothing and says nothing: no byte, no FIN, no RST passes, in either direction. What was sent
 *    meanwhile, and the end of either side, is held back and delivered when it thaws: a stream given up long ago may speak.
 * 3. What is cut is gone: held bytes of a cut connection are never delivered.
 * 4. New connections are accepted while it is frozen, and are as silent as the others.
 */
import { once } from "node:events";
import * as net from "node:net";

export type Cut = "reset" | "end";

export class Relay {
  readonly #server: net.Server;
  readonly #connections = new Set<Connection>();
  #target: number | undefined;
  #frozen = false;
  #delayMs = 0;
  /** Connections so far. */
  accepted = 0;

  private constructor(server: net.Server) {
    this.#server = server;
  }

  static async open(address = "127.0.0.1", port = 0): Promise<Relay> {
    const server = net.createServer({ allowHalfOpen: true }, (client) => relay.#accept(client));
    const relay = new Relay(server);
    server.listen(port, address);
    await once(server, "listening");
    return relay;
  }

  /**
   * Several, each with an address of its own and all on one port, so that one `--public-url` (the first one's) stands for
   * all of them. The addresses are loopback ones, all of which Linux has.
   */
  static async openRow(count: number): Promise<readonly Relay[]> {
    for (;;) {
      const row = [await Relay.open("127.0.0.2")];
      try {
        while (row.length < count) row.push(await Relay.open(`127.0.0.${row.length + 2}`, row[0]?.port));
        return row;
      } catch (error) {
        await Promise.all(row.map((relay) => relay[Symbol.asyncDispose]()));
        if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      }
    }
  }

  get port(): number {
    return (this.#server.address() as net.AddressInfo).port;
  }

  get url(): string {
    return `http://${(this.#server.address() as net.AddressInfo).address}:${this.port}`;
  }

  /** Where new connections lead; while there is nobody, they are refused as a dead server's are. */
  forwardTo(url: string | undefined): void {
    this.#target = url === undefined ? undefined : Number(new URL(url).port);
  }

  /** Ends every connection: "reset" as a crashed peer does, "end" as one that leaves. Frozen ones too. Answers how many. */
  cut(how: Cut): number {
    const cut = this.#connections.size;
    for (const connection of this.#connections) connection.cut(how);
    return cut;
  }

  freeze(): void {
    this.#frozen = true;
    for (const connection of this.#connections) connection.freeze();
  }

  thaw(): void {
    this.#frozen = false;
    for (const connection of this.#connections) connection.thaw();
  }

  /** Has one connection carry nothing any more, and never end, until it is cut. Answers whether there was one. */
  stick(nth: number): boolean {
    const connections = [...this.#connections];
    const stuck = connections[nth % connections.length];
    stuck?.stick();
    return stuck !== undefined;
  }

  /** From now on bytes take that long, and come in small pieces; 0 ends it. */
  slow(delayMs: number): void {
    this.#delayMs = delayMs;
    for (const connection of this.#connections) connection.slow(delayMs);
  }

  #accept(client: net.Socket): void {
    this.accepted++;
    if (this.#target === undefined) {
      client.on("error", () => undefined);
      reset(client);
      return;
    }
    const upstream = net.connect({ port: this.#target, host: "127.0.0.1", allowHalfOpen: true });
    const connection = new Connection(client, upstream, () => this.#connections.delete(connection));
    this.#connections.add(connection);
    connection.slow(this.#delayMs);
    if (this.#frozen) connection.freeze();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const connection of this.#connections) connection.cut("reset");
    await closed;
  }
}

/** One whose end was sent already cannot be reset any more: Node would keep its handle, and never exit. */
function reset(socket: net.Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

class Connection {
  readonly #sides: readonly net.Socket[];
  readonly #directions: readonly Direction[];
  readonly #onGone: () => void;
  #isStuck = false;

  constructor(client: net.Socket, upstream: net.Socket, onGone: () => void) {
    this.#sides = [client, upstream];
    this.#onGone = onGone;
    this.#directions = [new Direction(client, upstream), new Direction(upstream, client)];
    for (const side of this.#sides) {
      side.setNoDelay(true);
      side.on("close", () => {
        if (this.#sides.every(({ destroyed }) => destroyed)) this.#onGone();
      });
    }
  }

  freeze(): void {
    for (const direction of this.#directions) direction.freeze();
  }

  stick(): void {
    this.#isStuck = true;
    this.freeze();
  }

  thaw(): void {
    if (this.#isStuck) return;
    for (const direction of this.#directions) direction.thaw();
  }

  slow(delayMs: number): void {
    for (const direction of this.#directions) direction.slow(delayMs);
  }

  cut(how: Cut): void {
    for (const direction of this.#directions) direction.drop();
    for (const side of this.#sides) {
      if (how === "reset") reset(side);
      else side.destroySoon();
    }
    this.#onGone();
  }
}

/** Pieces this long leave one after the other when bytes are slow. */
const PIECE_BYTES = 512;

type Passage = Buffer | "end" | "reset";

/** One way of one connection. */
class Direction {
  readonly #to: net.Socket;
  #held: Passage[] = [];
  #frozen = false;
  #dropped = false;
  #delayMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;

  constructor(from: net.Socket, to: net.Socket) {
    this.#to = to;
    from.on("data", (bytes: Buffer) => this.#take(bytes));
    from.on("end", () => this.#take("end"));
    // Its end follows in "close".
    from.on("error", () => undefined);
    from.on("close", (hadError) => this.#take(hadError ? "reset" : "end"));
  }

  freeze(): void {
    this.#frozen = true;
    this.#disarm();
  }

  thaw(): void {
    this.#frozen = false;
    this.#deliver();
  }

  slow(delayMs: number): void {
    this.#delayMs = delayMs;
    this.#disarm();
    this.#deliver();
  }

  drop(): void {
    this.#dropped = true;
    this.#held = [];
    this.#disarm();
  }

  #take(passage: Passage): void {
    if (this.#dropped) return;
    this.#held.push(passage);
    this.#deliver();
  }

  #deliver(): void {
    if (this.#frozen || this.#timer !== undefined || this.#held.length === 0) return;
    if (this.#delayMs === 0) {
      for (const passage of this.#held.splice(0)) this.#pass(passage);
      return;
    }
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#passPiece();
      this.#deliver();
    }, this.#delayMs);
  }

  #passPiece(): void {
    const first = this.#held.shift();
    if (first === undefined) return;
    if (typeof first === "string" || first.length <= PIECE_BYTES) {
      this.#pass(first);
      return;
    }
    this.#held.unshift(first.subarray(PIECE_BYTES));
    this.#pass(first.subarray(0, PIECE_BYTES));
  }

  #pass(passage: Passage): void {
    if (this.#to.destroyed) return;
    if (passage === "reset") {
      reset(this.#to);
    } else if (this.#ended) {
      return;
    } else if (passage === "end") {
      this.#ended = true;
      this.#to.end();
    } else {
      this.#to.write(passage);
    }
  }

  #disarm(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
