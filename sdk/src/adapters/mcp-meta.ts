/** In `_meta` of a `tools/call` request and its result: the call's id in the session. */
export const CALL_ID_META = "brain/call_id";

/** In `_meta` of a result with `isError`: the failed Outcome, whole. */
export const OUTCOME_META = "brain/outcome";
