package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Part 9: where a group starts, and being sent back in time. */
final class StartScenarios {
    private static final int SETTLE_MS = 1_500;
    private static final int POLL_MS = 100;
    private static final int AUTO_COMMIT_MS = 1_000;

    private StartScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("start-first", world -> start(world, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, null));
        all.put("start-last-of-a-young-topic", world -> start(world, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, null));
        all.put("start-time-of-a-young-topic", world -> start(world, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
            UtilAll.timeMillisToHumanString3(System.currentTimeMillis() + 3_600_000)));
        all.put("start-where-it-was", StartScenarios::whereItWas);
        all.put("start-reset-by-time", StartScenarios::resetByTime);
        all.put("start-reset-under-load", StartScenarios::resetUnderLoad);
        all.put("start-reset-of-lite-pull", StartScenarios::resetOfLitePull);
        all.put("start-reset-then-old-commit", StartScenarios::resetThenOldCommit);
    }

    /** Five messages from before the group, five after: which of them a new group is given. */
    private static JSONObject start(World world, ConsumeFromWhere where, String time) throws Exception {
        String topic = world.topic(1);
        world.send(topic, "before", 5, 0);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.setConsumeFromWhere(where);
        if (time != null) {
            consumer.setConsumeTimestamp(time);
        }
        Deliveries deliveries = world.consume(consumer, topic, "*");
        World.within(World.WAIT_MS, () -> World.queuesOf(consumer, topic) == 1);
        Thread.sleep(SETTLE_MS);
        world.send(topic, "later", 5, 0);
        World.within(World.WAIT_MS, () -> deliveries.now().stream().anyMatch(one -> one.key.equals("later-4")));
        Thread.sleep(SETTLE_MS);
        return Facts.of("given", Facts.sorted(deliveries.now(), one -> one.key));
    }

    /** A group that was here before goes on, whatever it now says about where to start. */
    private static JSONObject whereItWas(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        world.send(topic, "before", 5, 0);
        DefaultMQPushConsumer first = world.consumer(group);
        world.consume(first, topic, "*").await(5, World.WAIT_MS);
        Thread.sleep(SETTLE_MS);
        first.shutdown();
        world.send(topic, "while away", 5, 0);
        DefaultMQPushConsumer again = world.consumer(group);
        again.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        List<Deliveries.Delivery> given = world.consume(again, topic, "*").awaitAndSettle(5, World.WAIT_MS, SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key));
    }

    private static DefaultMQAdminExt admin(World world) throws Exception {
        DefaultMQAdminExt admin = world.configure(new DefaultMQAdminExt());
        admin.start();
        world.closeLater(admin::shutdown);
        return admin;
    }

    /** Consumed to the end, then sent back to a time between two messages: what is younger comes again. */
    private static JSONObject resetByTime(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        Deliveries deliveries = world.consume(group, topic);
        long time = sendAroundATime(world, topic);
        deliveries.await(10, World.WAIT_MS);
        Thread.sleep(SETTLE_MS);
        var offsets = admin(world).resetOffsetByTimestamp(topic, group, time, true);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(15, World.WAIT_MS, SETTLE_MS);
        return Facts.of("offsets", offsets.values(),
            "again", Facts.sorted(given.subList(10, given.size()), one -> one.key));
    }

    /** The same while messages flow: nothing younger is missed, and in the end everything is committed. */
    private static JSONObject resetUnderLoad(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        Deliveries deliveries = world.consume(group, topic);
        DefaultMQProducer producer = world.producer();
        AtomicBoolean over = new AtomicBoolean();
        int[] sent = new int[1];
        Thread sender = new Thread(() -> {
            while (!over.get()) {
                if (Facts.outcome(() -> producer.send(World.message(topic, "tag", "0-" + sent[0]))).equals("ok")) {
                    sent[0]++;
                }
                if (Facts.outcome(() -> Thread.sleep(3)) != "ok") {
                    return;
                }
            }
        });
        sender.start();
        Thread.sleep(1_000);
        long time = System.currentTimeMillis();
        Thread.sleep(1_500);
        int before = deliveries.count();
        DefaultMQAdminExt admin = admin(world);
        var offsets = admin.resetOffsetByTimestamp(topic, group, time, true);
        long offset = offsets.values().iterator().next();
        boolean back = World.within(World.WAIT_MS, () -> deliveries.now().stream().skip(before)
            .anyMatch(one -> one.message.getQueueOffset() == offset));
        Thread.sleep(1_000);
        over.set(true);
        sender.join();
        boolean each = World.within(World.WAIT_MS, () -> deliveries.now().stream().skip(before)
            .map(one -> one.message.getQueueOffset()).filter(one -> one >= offset).distinct().count()
            == sent[0] - offset);
        boolean committed = isCommitted(admin, group, topic, sent[0]);
        return Facts.of("backAtTheOffset", back, "allSinceThenAgain", each, "committed", committed);
    }

    private static DefaultLitePullConsumer litePull(World world, String group, String topic) throws Exception {
        DefaultLitePullConsumer consumer = world.configure(new DefaultLitePullConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommitIntervalMillis(AUTO_COMMIT_MS);
        consumer.subscribe(topic, "*");
        consumer.start();
        world.closeLater(consumer::shutdown);
        return consumer;
    }

    /** Polls until there are *count* messages, and some time longer for one too many; their keys in order. */
    private static List<String> poll(DefaultLitePullConsumer consumer, int count) {
        List<String> keys = new ArrayList<>();
        long deadline = System.currentTimeMillis() + World.WAIT_MS;
        while (keys.size() < count && System.currentTimeMillis() < deadline) {
            consumer.poll(POLL_MS).forEach(message -> keys.add(message.getKeys()));
        }
        long settled = System.currentTimeMillis() + SETTLE_MS;
        while (System.currentTimeMillis() < settled) {
            consumer.poll(POLL_MS).forEach(message -> keys.add(message.getKeys()));
        }
        return keys;
    }

    /** Five messages, a time, five more. */
    private static long sendAroundATime(World world, String topic) throws Exception {
        world.send(topic, "old", 5, 0);
        Thread.sleep(500);
        long time = System.currentTimeMillis();
        Thread.sleep(500);
        world.send(topic, "young", 5, 0);
        return time;
    }

    private static boolean isCommitted(DefaultMQAdminExt admin, String group, String topic, long offset)
        throws Exception {
        return World.within(World.WAIT_MS, () -> admin.examineConsumeStats(group, topic).getOffsetTable().values()
            .stream().allMatch(one -> one.getConsumerOffset() == offset));
    }

    /** A consumer that is polled all the time, sent back: what is younger comes again, and is committed again. */
    private static JSONObject resetOfLitePull(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        DefaultLitePullConsumer consumer = litePull(world, group, topic);
        long time = sendAroundATime(world, topic);
        List<String> first = poll(consumer, 10);
        DefaultMQAdminExt admin = admin(world);
        boolean before = isCommitted(admin, group, topic, 10);
        var offsets = admin.resetOffsetByTimestamp(topic, group, time, true);
        List<String> again = poll(consumer, 5);
        world.send(topic, "later", 5, 0);
        List<String> later = poll(consumer, 5);
        return Facts.of("first", first.size(), "committed", before, "offsets", offsets.values(), "again", again,
            "later", later, "committedInTheEnd", isCommitted(admin, group, topic, 15));
    }

    /** One that commits, after the reset, what it had consumed before it, and leaves: where its successor begins. */
    private static JSONObject resetThenOldCommit(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        DefaultLitePullConsumer consumer = litePull(world, group, topic);
        consumer.setAutoCommit(false);
        long time = sendAroundATime(world, topic);
        List<String> first = poll(consumer, 10);
        commit(consumer);
        DefaultMQAdminExt admin = admin(world);
        boolean before = isCommitted(admin, group, topic, 10);
        var offsets = admin.resetOffsetByTimestamp(topic, group, time, true);
        world.send(topic, "later", 5, 0);
        // Long enough for the client's own thread to have pulled what it was sent back to, and what has come since.
        Thread.sleep(SETTLE_MS);
        commit(consumer);
        consumer.shutdown();
        List<String> next = poll(litePull(world, group, topic), 10);
        return Facts.of("first", first.size(), "committed", before, "offsets", offsets.values(), "next", next);
    }

    /** Takes what was polled for consumed and tells the broker at once. */
    private static void commit(DefaultLitePullConsumer consumer) throws Exception {
        consumer.commitSync();
        consumer.getOffsetStore().persistAll(consumer.assignment());
    }
}
