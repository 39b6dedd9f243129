package org.pymq.interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Appends what stdin says, in its order. A line is a message, {"batch": [message, ...]}, or {"pauseMs": n}.
 *
 * Appending happens in the calling thread and only the flush is awaited later, so the puts are issued in order and
 * their futures collected at the end: under SYNC_FLUSH the whole input then costs a few group commits.
 */
final class WriteCommand {
    private final OpenStore opened;
    private final Wire wire;

    WriteCommand(OpenStore opened, Wire wire) {
        this.opened = opened;
        this.wire = wire;
    }

    void run() throws Exception {
        List<CompletableFuture<PutMessageResult>> puts = new ArrayList<>();
        for (JSONObject line = wire.receive(); line != null; line = wire.receive()) {
            JSONArray batch = line.getJSONArray("batch");
            if (line.containsKey("pauseMs")) {
                Thread.sleep(line.getLongValue("pauseMs"));
            } else if (batch != null) {
                puts.add(opened.store.asyncPutMessages(MessageJson.batch(batch)));
            } else {
                puts.add(opened.store.asyncPutMessage(MessageJson.single(line)));
            }
        }
        for (CompletableFuture<PutMessageResult> put : puts) {
            report(put.get());
        }
        opened.awaitDispatched();
        wire.send(Wire.line("written").fluentPut("maxPhysicalOffset", opened.store.getMaxPhyOffset()));
    }

    /** One line per message, a batch's in its order. A refused put has no append result and one line. */
    private void report(PutMessageResult put) {
        AppendMessageResult append = put.getAppendMessageResult();
        String status = put.getPutMessageStatus().name();
        if (append == null || append.getMsgId() == null) {
            wire.post(Wire.line("put").fluentPut("status", status));
            return;
        }
        String[] messageIds = append.getMsgId().split(",");
        for (int index = 0; index < messageIds.length; index++) {
            String messageId = messageIds[index];
            // An offset message id ends in the 8 bytes of the physical offset, whatever the address family before it.
            long physicalOffset = Long.parseUnsignedLong(messageId.substring(messageId.length() - 16), 16);
            wire.post(Wire.line("put")
                .fluentPut("status", status)
                .fluentPut("queueOffset", append.getLogicsOffset() + index)
                .fluentPut("physicalOffset", physicalOffset)
                .fluentPut("msgId", messageId)
                .fluentPut("storeTimestamp", append.getStoreTimestamp()));
        }
    }
}
