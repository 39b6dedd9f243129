package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Part 8: finding a message again. */
final class QueryScenarios {
    private static final int MESSAGES_MAX = 32;
    private static final int GAP_MS = 150;

    private QueryScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("query-by-offset-id", QueryScenarios::byOffsetId);
        all.put("query-by-unique-key", QueryScenarios::byUniqueKey);
        all.put("query-by-key", QueryScenarios::byKey);
        all.put("query-by-queue-offset", QueryScenarios::byQueueOffset);
        all.put("query-by-time", QueryScenarios::byTime);
        all.put("query-what-is-not-there", QueryScenarios::notThere);
    }

    private static JSONObject described(MessageExt message, SendResult sent) {
        return Facts.of("key", message.getKeys(), "tag", message.getTags(), "body", new String(message.getBody()),
            "queue", message.getQueueId() == sent.getMessageQueue().getQueueId(),
            "queueOffset", message.getQueueOffset() == sent.getQueueOffset(),
            "word", message.getUserProperty("word"));
    }

    private static SendResult send(World world, String topic, String key) throws Exception {
        Message message = World.message(topic, "tag", key);
        message.putUserProperty("word", "Schirm \u2602");
        return world.producer().send(message);
    }

    private static JSONObject byOffsetId(World world) throws Exception {
        String topic = world.topic(4);
        send(world, topic, "other");
        SendResult sent = send(world, topic, "wanted");
        // With a transient pool it is found when it was committed, a moment later.
        World.within(World.WAIT_MS, () -> Facts.outcome(
            () -> world.producer().viewMessage(topic, sent.getOffsetMsgId())).equals("ok"));
        MessageExt found = world.producer().viewMessage(topic, sent.getOffsetMsgId());
        return Facts.of("found", described(found, sent), "id", found.getMsgId().equals(sent.getMsgId()));
    }

    private static JSONObject byUniqueKey(World world) throws Exception {
        String topic = world.topic(4);
        send(world, topic, "other");
        SendResult sent = send(world, topic, "wanted");
        World.within(World.WAIT_MS, () -> Facts.outcome(
            () -> world.producer().viewMessage(topic, sent.getMsgId())).equals("ok"));
        MessageExt found = world.producer().viewMessage(topic, sent.getMsgId());
        return Facts.of("found", described(found, sent), "id", found.getMsgId().equals(sent.getMsgId()));
    }

    private static int count(DefaultMQProducer producer, String topic, String key, int most, long from, long to) {
        try {
            return producer.queryMessage(topic, key, most, from, to).getMessageList().size();
        } catch (Exception nothing) {
            return 0;
        }
    }

    /** By one of several keys, in a window of time, at most so many. */
    private static JSONObject byKey(World world) throws Exception {
        String topic = world.topic(2);
        DefaultMQProducer producer = world.producer();
        String key = world.name("key");
        // The index knows seconds: what was stored within the first one may count as earlier.
        long begin = System.currentTimeMillis() - 2_000;
        for (int i = 0; i < 5; i++) {
            producer.send(World.message(topic, "tag", key + " own-" + i));
        }
        producer.send(World.message(topic, "tag", "another"));
        long end = System.currentTimeMillis() + 1_000;
        World.within(World.WAIT_MS, () -> count(producer, topic, key, MESSAGES_MAX, begin, end) == 5);
        String elsewhere = world.topic(1);
        return Facts.of("all", count(producer, topic, key, MESSAGES_MAX, begin, end),
            "one", count(producer, topic, "own-3", MESSAGES_MAX, begin, end),
            "atMost", count(producer, topic, key, 2, begin, end),
            "earlier", count(producer, topic, key, MESSAGES_MAX, begin - 100_000, begin - 50_000),
            "otherTopic", count(producer, elsewhere, key, MESSAGES_MAX, begin, end));
    }

    private static JSONObject byQueueOffset(World world) throws Exception {
        String topic = world.topic(1);
        world.send(topic, "m", 10, 0);
        DefaultMQPullConsumer consumer = world.configure(new DefaultMQPullConsumer(world.group()));
        consumer.start();
        world.closeLater(consumer::shutdown);
        world.raw.read(topic, 0, 10, World.WAIT_MS);
        var some = consumer.pull(world.queue(topic, 0), "*", 7, 2);
        var beyond = consumer.pull(world.queue(topic, 0), "*", 10, MESSAGES_MAX);
        var far = consumer.pull(world.queue(topic, 0), "*", 99, MESSAGES_MAX);
        var negative = Facts.outcome(() -> consumer.pull(world.queue(topic, 0), "*", -1, MESSAGES_MAX));
        return Facts.of("keys", Facts.each(some.getMsgFoundList(), MessageExt::getKeys),
            "next", some.getNextBeginOffset(), "min", some.getMinOffset(), "max", some.getMaxOffset(),
            "end", beyond.getPullStatus().name(), "beyond", far.getPullStatus().name(),
            "corrected", far.getNextBeginOffset(), "negative", negative,
            "minOffset", consumer.minOffset(world.queue(topic, 0)),
            "maxOffset", consumer.maxOffset(world.queue(topic, 0)));
    }

    private static JSONObject byTime(World world) throws Exception {
        String topic = world.topic(1);
        List<Long> times = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Thread.sleep(GAP_MS);
            times.add(System.currentTimeMillis());
            Thread.sleep(GAP_MS);
            world.send(topic, "m" + i, 3, 0);
        }
        world.raw.read(topic, 0, 9, World.WAIT_MS);
        List<MessageExt> stored = world.raw.read(topic, 0);
        DefaultMQProducer producer = world.producer();
        var queue = world.queue(topic, 0);
        List<Long> offsets = new ArrayList<>();
        for (long time : times) {
            offsets.add(producer.searchOffset(queue, time));
        }
        return Facts.of("before each", offsets,
            "exact", producer.searchOffset(queue, stored.get(3).getStoreTimestamp())
                <= 3 && producer.searchOffset(queue, stored.get(3).getStoreTimestamp()) >= 1,
            "later", producer.searchOffset(queue, System.currentTimeMillis() + 100_000),
            "earlier", producer.searchOffset(queue, 0),
            "earliest", producer.earliestMsgStoreTime(queue) == stored.get(0).getStoreTimestamp());
    }

    private static JSONObject notThere(World world) throws Exception {
        String topic = world.topic(1);
        SendResult sent = send(world, topic, "m");
        long now = System.currentTimeMillis();
        String offsetId = sent.getOffsetMsgId();
        String beyond = offsetId.substring(0, offsetId.length() - 16) + "00000000FFFFFFF0";
        return Facts.of("key", Facts.outcome(() -> world.producer().queryMessage(topic, "none", 5, now - 1000, now)),
            "uniqueKey", Facts.outcome(() -> world.producer()
                .viewMessage(topic, sent.getMsgId().substring(0, 28) + "FFFF")),
            "offset", Facts.outcome(() -> world.producer().viewMessage(topic, beyond)));
    }
}
