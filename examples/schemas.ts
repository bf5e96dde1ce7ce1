// One contract in four ways, which publish the same and so are one Tool. Prints what a model is shown of it.
import { jsonSchema, tool } from "@aexhq/brain";
import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";

const about = { name: "greet", description: "Greet somebody." };

const ways = {
  zod: tool({ ...about, input: z.object({ name: z.string() }), run: ({ name }) => `Hello, ${name}` }),
  Valibot: tool({ ...about, input: toStandardJsonSchema(v.object({ name: v.string() })), run: ({ name }) => `Hello, ${name}` }),
  ArkType: tool({ ...about, input: type({ name: "string" }), run: ({ name }) => `Hello, ${name}` }),
  "plain JSON Schema": tool({
    ...about,
    // The type is a claim; Brain checks every value against the schema before the function gets it.
    input: jsonSchema<{ name: string }>({
      $schema: "https://json-schema.org/draft/2020-12/schema",
      type: "object",
      properties: { name: { type: "string" } },
      required: ["name"],
    }),
    run: ({ name }) => `Hello, ${name}`,
  }),
};

console.log(ways.zod.definition.inputSchemaJson);
for (const [way, { definition }] of Object.entries(ways)) console.log(definition.sha256 === ways.zod.definition.sha256, way);
