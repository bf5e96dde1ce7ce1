/** The Tool that is called: about 270 bytes of input, as small calls of agents are. */
export const TOOL = "lookup";
export const ENVIRONMENT = "bench";

export const INPUT_JSON = JSON.stringify({
  query: "which of the warehouses in the northern region still hold stock of article 4711 in size L, since when",
  limit: 25,
  fields: [
    "warehouse",
    "region",
    "article",
    "size",
    "colour",
    "quantity",
    "reserved",
    "inbound",
    "last_counted_at",
    "unit_price",
    "supplier",
  ],
});

export const OUTPUT = {
  summary: "three warehouses hold stock: Kiel 12, Rostock 4, Stralsund 1; the oldest since the fourth of March",
  total: 17,
  sources: ["stock/kiel", "stock/rostock", "stock/stralsund"],
};
