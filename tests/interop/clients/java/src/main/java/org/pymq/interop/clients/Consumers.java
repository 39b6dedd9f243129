package org.pymq.interop.clients;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers, which report by themselves, and lite pull consumers, which are asked. */
final class Consumers {
    private static final int METADATA_CHECK_MS = 1_000;
    private static final int CONSUMED_TIMEOUT_MS = 5_000;

    private final Wire wire;
    private final Map<String, DefaultMQPushConsumer> push = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> litePull = new ConcurrentHashMap<>();

    Consumers(Wire wire) {
        this.wire = wire;
    }

    JSONObject startPush(JSONObject request) throws Exception {
        String name = request.getString("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        Settings.apply(consumer, request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (request.getString("sql") != null) {
            consumer.subscribe(request.getString("topic"), MessageSelector.bySql(request.getString("sql")));
        } else {
            consumer.subscribe(request.getString("topic"), request.getString("expression"));
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            wire.send(new JSONObject()
                .fluentPut("event", "received")
                .fluentPut("consumer", name)
                .fluentPut("messages", toJson(messages)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        push.put(name, consumer);
        return new JSONObject();
    }

    JSONObject startLitePull(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"));
        Settings.apply(consumer, request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(request.getBooleanValue("autoCommit"));
        consumer.setTopicMetadataCheckIntervalMillis(METADATA_CHECK_MS);
        if (request.getString("sql") != null) {
            consumer.subscribe(request.getString("topic"), MessageSelector.bySql(request.getString("sql")));
        } else {
            consumer.subscribe(request.getString("topic"), request.getString("expression"));
        }
        consumer.start();
        litePull.put(request.getString("name"), consumer);
        return new JSONObject();
    }

    JSONObject poll(JSONObject request) {
        List<MessageExt> messages = litePull.get(request.getString("consumer")).poll(request.getLongValue("timeoutMs"));
        return new JSONObject().fluentPut("messages", toJson(messages));
    }

    /** Takes polled messages as consumed and tells the broker at once, as a program does before it ends. */
    JSONObject commit(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = litePull.get(request.getString("consumer"));
        consumer.commitSync();
        consumer.getOffsetStore().persistAll(consumer.assignment());
        return new JSONObject();
    }

    /** The ids of the queues that a consumer holds now. */
    JSONObject queues(JSONObject request) throws Exception {
        String name = request.getString("consumer");
        DefaultMQPushConsumer pushed = push.get(name);
        Collection<MessageQueue> held = pushed == null
            ? litePull.get(name).assignment()
            : pushed.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
        JSONArray ids = new JSONArray();
        for (MessageQueue queue : held) {
            if (queue.getTopic().equals(request.getString("topic"))) {
                ids.add(queue.getQueueId());
            }
        }
        return new JSONObject().fluentPut("queues", ids);
    }

    private static JSONArray toJson(List<MessageExt> messages) {
        JSONArray lines = new JSONArray();
        messages.forEach(message -> lines.add(MessageJson.received(message)));
        return lines;
    }

    void close(String name) throws InterruptedException {
        DefaultMQPushConsumer pushed = push.remove(name);
        if (pushed != null) {
            awaitConsumed(pushed);
            pushed.shutdown();
        }
        DefaultLitePullConsumer pulled = litePull.remove(name);
        if (pulled != null) {
            pulled.shutdown();
        }
    }

    /** A message counts as consumed a moment after its listener reported it; its offset is stored from then on. */
    private static void awaitConsumed(DefaultMQPushConsumer consumer) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CONSUMED_TIMEOUT_MS);
        while (System.nanoTime() < deadline && unconsumed(consumer) > 0) {
            Thread.sleep(10);
        }
    }

    private static long unconsumed(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().values().stream()
            .mapToLong(queue -> queue.getMsgCount().get())
            .sum();
    }

    void closeAll() throws InterruptedException {
        for (String name : push.keySet()) {
            close(name);
        }
        for (String name : litePull.keySet()) {
            close(name);
        }
    }
}
