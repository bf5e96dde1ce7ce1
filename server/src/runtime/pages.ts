import { LIMITS } from "../config.js";
import { invalidArgument } from "../core/refusal.js";

/** @throws Refusal `invalid_argument` above the limit; zero is the server's choice. */
export function checkPageSize(pageSize: number): number {
  if (pageSize > LIMITS.pageRecords)
    throw invalidArgument("page_size", `${pageSize} is too many; at most ${LIMITS.pageRecords} are allowed`);
  return pageSize === 0 ? LIMITS.defaultPageRecords : pageSize;
}
