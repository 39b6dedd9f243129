package org.pymq.interop.clients;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Producers by name, and the ways to send.
 *
 * <pre>
 *   sync      one after the other           async     all at once, callbacks awaited
 *   oneway    nothing comes back            batch     one request; its one result stands for all
 *   selector  a MessageQueueSelector takes each message's "queueId" as its argument
 * </pre>
 */
final class Producers {
    private static final int SEND_TIMEOUT_MS = 10_000;
    private static final MessageQueueSelector BY_ARGUMENT =
        (queues, message, argument) -> queues.get((Integer) argument % queues.size());

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();

    JSONObject start(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"));
        Settings.apply(producer, request);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        // A retried send would hide a refused one, and could store a message twice.
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        producers.put(request.getString("name"), producer);
        return new JSONObject();
    }

    JSONObject send(JSONObject request) throws Exception {
        DefaultMQProducer producer = producers.get(request.getString("producer"));
        JSONArray lines = request.getJSONArray("messages");
        JSONArray results = new JSONArray();
        switch (request.getString("mode")) {
            case "sync":
                for (int i = 0; i < lines.size(); i++) {
                    results.add(result(producer.send(MessageJson.parse(lines.getJSONObject(i)))));
                }
                break;
            case "selector":
                for (int i = 0; i < lines.size(); i++) {
                    JSONObject line = lines.getJSONObject(i);
                    Integer queueId = line.getInteger("queueId");
                    results.add(result(producer.send(MessageJson.parse(line), BY_ARGUMENT, queueId)));
                }
                break;
            case "async":
                for (CompletableFuture<SendResult> pending : sendAsync(producer, lines)) {
                    results.add(result(pending.get(SEND_TIMEOUT_MS, TimeUnit.MILLISECONDS)));
                }
                break;
            case "oneway":
                for (int i = 0; i < lines.size(); i++) {
                    producer.sendOneway(MessageJson.parse(lines.getJSONObject(i)));
                }
                break;
            case "batch":
                List<Message> batch = new ArrayList<>();
                for (int i = 0; i < lines.size(); i++) {
                    batch.add(MessageJson.parse(lines.getJSONObject(i)));
                }
                results.add(result(producer.send(batch)));
                break;
            default:
                throw new IllegalArgumentException("no such mode: " + request.getString("mode"));
        }
        return new JSONObject().fluentPut("results", results);
    }

    private static List<CompletableFuture<SendResult>> sendAsync(DefaultMQProducer producer, JSONArray lines)
        throws Exception {
        List<CompletableFuture<SendResult>> pending = new ArrayList<>();
        for (int i = 0; i < lines.size(); i++) {
            CompletableFuture<SendResult> one = new CompletableFuture<>();
            pending.add(one);
            producer.send(MessageJson.parse(lines.getJSONObject(i)), new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    one.complete(sent);
                }

                @Override
                public void onException(Throwable problem) {
                    one.completeExceptionally(problem);
                }
            });
        }
        return pending;
    }

    private static JSONObject result(SendResult sent) {
        return new JSONObject()
            .fluentPut("status", sent.getSendStatus().name())
            .fluentPut("msgId", sent.getMsgId())
            .fluentPut("offsetMsgId", sent.getOffsetMsgId())
            .fluentPut("brokerName", sent.getMessageQueue().getBrokerName())
            .fluentPut("queueId", sent.getMessageQueue().getQueueId())
            .fluentPut("queueOffset", sent.getQueueOffset());
    }

    void close(String name) {
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
    }

    void closeAll() {
        producers.keySet().forEach(this::close);
    }
}
