/**
 * Server-sent events as WHATWG specifies them (HTML, 9.2.6), from pieces of any size.
 *
 * The library eventsource-parser 3.1.1 is not used: it forgets the id of an event without data, which the next event
 * has by the specification, and holds back an event that ends with a carriage return until more text arrives.
 */

/** A message of the stream. */
export interface ParsedEvent {
  /** The last id of the stream: empty if there was none. */
  id: string;
  event: string;
  data: string;
}

export class EventParser {
  readonly #decoder = new TextDecoder();
  /** The pieces of a line whose end has not arrived. */
  #line: string[] = [];
  /** The last character was a carriage return: a line feed belongs to it. */
  #isAfterReturn = false;
  #id = "";
  #event = "";
  #data: string[] = [];
  /** The stream has sent a comment. */
  hasComment = false;

  /** Adds bytes, and returns the events that they complete. */
  push(bytes: Uint8Array): ParsedEvent[] {
    const events: ParsedEvent[] = [];
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") return events;
    if (this.#isAfterReturn && text.startsWith("\n")) text = text.slice(1);
    this.#isAfterReturn = text === "" ? false : text.endsWith("\r");
    let start = 0;
    for (const { index, 0: end } of text.matchAll(/\r\n|\r|\n/g)) {
      const line = this.#line.splice(0).join("") + text.slice(start, index);
      start = index + end.length;
      if (line === "") this.#dispatch(events);
      else this.#field(line);
    }
    if (start < text.length) this.#line.push(text.slice(start));
    return events;
  }

  #field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (colon === 0) this.hasComment = true;
    else if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }

  #dispatch(events: ParsedEvent[]): void {
    const lines = this.#data.splice(0);
    if (lines.length > 0) events.push({ id: this.#id, event: this.#event || "message", data: lines.join("\n") });
    this.#event = "";
  }
}
