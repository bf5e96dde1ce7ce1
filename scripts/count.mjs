// Prints `N passed, N failed`: every test of the runner's report, and every other suite as one.
import { readFileSync } from "node:fs";

const [report, suitesPassed, suitesFailed] = process.argv.slice(2);
let passed = Number(suitesPassed);
let failed = Number(suitesFailed);
try {
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, testResults } = JSON.parse(readFileSync(report, "utf8"));
  passed += numPassedTests;
  failed += numFailedTests;
  const unrun = numPendingTests + numTodoTests;
  if (unrun > 0) {
    console.log(`${unrun} tests were not run; a test that does not run is a failure`);
    failed += unrun;
  }
  for (const file of testResults) if (file.status === "failed") console.log(`failed in ${file.name}: ${file.message.split("\n")[0]}`);
} catch (error) {
  console.log(`the test runner left no report: ${error.message}`);
  failed += 1;
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
