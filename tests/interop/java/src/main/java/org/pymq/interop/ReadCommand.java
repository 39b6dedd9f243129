package org.pymq.interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;

/**
 * Prints the store's contents, then answers queries.
 *
 * Messages come out by the path a consumer's pull takes (getMessage), and each carries its queue unit's fields, so a
 * unit and the record it points at can be compared by whoever reads this. Queries, one per line:
 *
 * <pre>
 *   {"op": "key", "topic": ..., "key": ..., "max": 32, "begin": 0, "end": ...}
 *   {"op": "time", "topic": ..., "queueId": ..., "timestamp": ..., "boundary": "LOWER" | "UPPER" | null}
 *   {"op": "offset", "physicalOffset": ...}
 * </pre>
 */
final class ReadCommand {
    private static final String GROUP = "pymq-interop";
    private static final int PULL_COUNT_MAX = 32;

    private final DefaultMessageStore store;
    private final Wire wire;

    ReadCommand(OpenStore opened, Wire wire) {
        this.store = opened.store;
        this.wire = wire;
    }

    void run() throws Exception {
        wire.post(Wire.line("store")
            .fluentPut("minPhysicalOffset", store.getMinPhyOffset())
            .fluentPut("maxPhysicalOffset", store.getMaxPhyOffset()));
        for (Map<Integer, ConsumeQueueInterface> queues : new TreeMap<>(store.getConsumeQueueTable()).values()) {
            for (ConsumeQueueInterface queue : new TreeMap<>(queues).values()) {
                printQueue(queue);
            }
        }
        wire.send(Wire.line("end"));
        for (JSONObject query = wire.receive(); query != null; query = wire.receive()) {
            wire.send(answer(query));
        }
    }

    private void printQueue(ConsumeQueueInterface queue) {
        String topic = queue.getTopic();
        int queueId = queue.getQueueId();
        long offsetMax = store.getConsumeQueue(topic, queueId).getMaxOffsetInQueue();
        wire.post(Wire.line("queue")
            .fluentPut("topic", topic)
            .fluentPut("queueId", queueId)
            .fluentPut("minOffset", queue.getMinOffsetInQueue())
            .fluentPut("maxOffset", offsetMax));
        long offset = queue.getMinOffsetInQueue();
        while (offset < offsetMax) {
            GetMessageResult pulled = store.getMessage(GROUP, topic, queueId, offset, PULL_COUNT_MAX, null);
            try {
                for (int index = 0; index < pulled.getMessageCount(); index++) {
                    MessageExt message = decode(pulled.getMessageBufferList().get(index));
                    printMessage(message, queue.get(pulled.getMessageQueueOffset().get(index)));
                }
            } finally {
                pulled.release();
            }
            if (pulled.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("pull of " + topic + "/" + queueId + " stands still at " + offset
                    + " with " + pulled.getStatus());
            }
            offset = pulled.getNextBeginOffset();
        }
    }

    private void printMessage(MessageExt message, CqUnit unit) {
        wire.post(MessageJson.describe(message)
            .fluentPut("unitOffset", unit.getQueueOffset())
            .fluentPut("unitPhysicalOffset", unit.getPos())
            .fluentPut("unitSize", unit.getSize())
            .fluentPut("unitTagsCode", unit.getTagsCode()));
    }

    /** Bodies stay as stored: the exchange compares bytes, and a compressed body's are the compressed ones. */
    private static MessageExt decode(ByteBuffer buffer) {
        return MessageDecoder.decode(buffer, true, false);
    }

    private JSONObject answer(JSONObject query) {
        switch (query.getString("op")) {
            case "key":
                return answerKey(query);
            case "time":
                return answerTime(query);
            case "offset":
                MessageExt message = store.lookMessageByOffset(query.getLongValue("physicalOffset"));
                return Wire.line("answer").fluentPut("message", message == null ? null : MessageJson.describe(message));
            default:
                throw new IllegalArgumentException("unknown query " + query);
        }
    }

    private JSONObject answerKey(JSONObject query) {
        QueryMessageResult result = store.queryMessage(query.getString("topic"), query.getString("key"),
            query.getIntValue("max"), query.getLongValue("begin"), query.getLongValue("end"));
        JSONArray messages = new JSONArray();
        try {
            for (SelectMappedBufferResult found : result.getMessageMapedList()) {
                messages.add(MessageJson.describe(decode(found.getByteBuffer())));
            }
        } finally {
            result.release();
        }
        return Wire.line("answer").fluentPut("messages", messages);
    }

    private JSONObject answerTime(JSONObject query) {
        String topic = query.getString("topic");
        int queueId = query.getIntValue("queueId");
        long timestamp = query.getLongValue("timestamp");
        String boundary = query.getString("boundary");
        long offset = boundary == null
            ? store.getOffsetInQueueByTime(topic, queueId, timestamp)
            : store.getOffsetInQueueByTime(topic, queueId, timestamp, BoundaryType.valueOf(boundary));
        return Wire.line("answer").fluentPut("offset", offset);
    }
}
