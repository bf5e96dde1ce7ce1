import { SessionService, SessionState, SessionSummarySchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ConnectRouter } from "@connectrpc/connect";
import type { Brain } from "../runtime/brain.js";
import { principalName } from "./principal-name.js";

export function registerSessionService(router: ConnectRouter, brain: Brain): void {
  const { sessions, records } = brain;
  router.service(SessionService, {
    async createSession(request, context) {
      return { session: await sessions.create(request, principalName(context)) };
    },
    async getSession({ sessionId }) {
      return { session: await sessions.get(sessionId) };
    },
    async listSessions(request) {
      const page = await sessions.list(request);
      return {
        nextPageToken: page.nextPageToken,
        sessions: page.sessions.map((row) =>
          create(SessionSummarySchema, {
            sessionId: row.sessionId,
            state: row.ended ? SessionState.ENDED : SessionState.OPEN,
            createTime: timestampFromMs(row.createTimeMs),
            lastSequence: row.lastSequence,
            openToolCalls: row.openToolCalls,
            labels: { ...row.labels },
          }),
        ),
      };
    },
    async endSession({ sessionId }, context) {
      return { session: await sessions.end(sessionId, principalName(context)) };
    },
    async deleteSession({ sessionId }, context) {
      await sessions.delete(sessionId, principalName(context));
      return {};
    },
    listRecords({ sessionId, afterSequence, pageSize }) {
      return records.list(sessionId, afterSequence, pageSize);
    },
    watchRecords({ sessionId, afterSequence }, { signal }) {
      return records.watch(sessionId, afterSequence, signal);
    },
  });
}
