// Prints the records of a session as Brain's JSON, read over HTTP from the server that BRAIN_URL and BRAIN_TOKEN name.
const { BRAIN_URL, BRAIN_TOKEN } = process.env;
const response = await fetch(`${BRAIN_URL}/brain.v1.SessionService/ListRecords`, {
  method: "POST",
  headers: { "Content-Type": "application/json", Authorization: `Bearer ${BRAIN_TOKEN}` },
  body: JSON.stringify({ sessionId: process.argv[2], pageSize: 1000 }),
});
if (!response.ok) throw new Error(await response.text());
process.stdout.write(await response.text());
