package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Part 3: order within a queue, and what keeps it: locks, suspension, one queue for all. */
final class OrderScenarios {
    private static final int SETTLE_MS = 1_500;
    private static final int PUT_KV_CONFIG = 100;
    /** A lock that a leaving member's timer renews behind its unlock is nobody's for 60 s; another 15 to take it. */
    private static final int LOCK_EXPIRED_MS = 75_000;

    private OrderScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("order-locks", OrderScenarios::locks);
        all.put("order-within-each-queue", OrderScenarios::withinEachQueue);
        all.put("order-member-joins-and-leaves", OrderScenarios::joinsAndLeaves);
        all.put("order-suspend", OrderScenarios::suspend);
        all.put("order-maximum-to-dead-letters", OrderScenarios::maximum);
        all.put("order-global", OrderScenarios::global);
        all.put("order-topic-config-in-the-route", OrderScenarios::configInRoute);
        all.put("order-queues-grow-and-shrink", OrderScenarios::growAndShrink);
    }

    /** Sends key "queue-number" to each queue in turn: *count* rounds, beginning with number *from*. */
    static void sendRounds(World world, String topic, int queues, int from, int count) throws Exception {
        for (int number = from; number < from + count; number++) {
            for (int queue = 0; queue < queues; queue++) {
                world.producer().send(World.message(topic, "tag", queue + "-" + number), world.queue(topic, queue));
            }
        }
    }

    /** An orderly consumer that takes everything for consumed, slowly enough for others to interfere. */
    static DefaultMQPushConsumer orderly(World world, String group, String topic, Deliveries deliveries, int workMs)
        throws Exception {
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.subscribe(topic, "*");
        String name = consumer.getInstanceName();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            deliveries.add(messages, name);
            try {
                Thread.sleep(workMs);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** How often a message was given before one that had been sent before it was given for the first time. */
    static int inversions(List<Deliveries.Delivery> deliveries) {
        Map<String, Integer> last = new HashMap<>();
        int inversions = 0;
        for (Deliveries.Delivery one : deliveries) {
            String[] key = one.key.split("-");
            int number = Integer.parseInt(key[1]);
            int expected = last.getOrDefault(key[0], -1) + 1;
            if (number > expected) {
                inversions++;
            }
            last.merge(key[0], number, Math::max);
        }
        return inversions;
    }

    private static List<Integer> lock(World world, int code, String group, String client, String topic, int... queues)
        throws Exception {
        JSONArray wanted = new JSONArray();
        for (int queue : queues) {
            wanted.add(Facts.of("topic", topic, "brokerName", world.brokerName, "queueId", queue));
        }
        JSONObject body = Facts.of("consumerGroup", group, "clientId", client, "mqSet", wanted, "onlyThisBroker", false);
        var answer = world.raw.askWithBody(code, body);
        if (answer.getBody() == null) {
            return List.of(-1 - answer.getCode());
        }
        JSONArray locked = JSON.parseObject(new String(answer.getBody(), StandardCharsets.UTF_8))
            .getJSONArray("lockOKMQSet");
        return locked.stream().map(one -> ((JSONObject) one).getIntValue("queueId")).sorted()
            .collect(Collectors.toList());
    }

    /** LOCK_BATCH_MQ and UNLOCK_BATCH_MQ by two clients of a group, and by another group. */
    private static JSONObject locks(World world) throws Exception {
        String topic = world.topic(4);
        String group = world.group();
        List<Integer> first = lock(world, Raw.LOCK_BATCH_MQ, group, "one", topic, 0, 1, 2);
        List<Integer> contested = lock(world, Raw.LOCK_BATCH_MQ, group, "two", topic, 1, 2, 3);
        List<Integer> again = lock(world, Raw.LOCK_BATCH_MQ, group, "one", topic, 0, 1, 2, 3);
        List<Integer> elsewhere = lock(world, Raw.LOCK_BATCH_MQ, world.group(), "two", topic, 0, 1);
        lock(world, Raw.UNLOCK_BATCH_MQ, group, "two", topic, 0);
        List<Integer> notTheirs = lock(world, Raw.LOCK_BATCH_MQ, group, "two", topic, 0);
        lock(world, Raw.UNLOCK_BATCH_MQ, group, "one", topic, 0, 1);
        List<Integer> freed = lock(world, Raw.LOCK_BATCH_MQ, group, "two", topic, 0, 1, 2, 3);
        return Facts.of("first", first, "contested", contested, "again", again, "otherGroup", elsewhere,
            "unlockedByAnother", notTheirs, "freed", freed);
    }

    private static JSONObject withinEachQueue(World world) throws Exception {
        String topic = world.topic(4);
        sendRounds(world, topic, 4, 0, 25);
        Deliveries deliveries = new Deliveries();
        orderly(world, world.group(), topic, deliveries, 0);
        List<Deliveries.Delivery> given = deliveries.await(100, World.WAIT_MS);
        return Facts.of("count", given.size(), "distinct", Deliveries.distinct(given).size(),
            "inversions", inversions(given));
    }

    /** Queues change hands twice while messages flow; nobody overtakes. */
    private static JSONObject joinsAndLeaves(World world) throws Exception {
        String topic = world.topic(4);
        String group = world.group();
        Deliveries deliveries = new Deliveries();
        DefaultMQPushConsumer first = orderly(world, group, topic, deliveries, 10);
        sendRounds(world, topic, 4, 0, 40);
        deliveries.await(20, World.WAIT_MS);
        DefaultMQPushConsumer second = orderly(world, group, topic, deliveries, 10);
        boolean shared = World.within(World.WAIT_MS, () -> World.queuesOf(second, topic) == 2);
        sendRounds(world, topic, 4, 40, 40);
        Thread.sleep(500);
        first.shutdown();
        boolean taken = World.within(LOCK_EXPIRED_MS, () -> World.queuesOf(second, topic) == 4);
        List<Deliveries.Delivery> given = deliveries.awaitKeys(320, World.WAIT_MS);
        return Facts.of("shared", shared, "taken", taken, "distinct", Deliveries.distinct(given).size(),
            "inversions", inversions(given));
    }

    /** A message that cannot be consumed yet holds up those behind it, and only its own queue. */
    private static JSONObject suspend(World world) throws Exception {
        String topic = world.topic(2);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            deliveries.add(messages, "");
            if (messages.get(0).getKeys().equals("0-0") && messages.get(0).getReconsumeTimes() < 2) {
                context.setSuspendCurrentQueueTimeMillis(300);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        sendRounds(world, topic, 2, 0, 3);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(8, World.WAIT_MS, 500);
        List<String> suspended = new ArrayList<>();
        List<String> other = new ArrayList<>();
        given.forEach(one -> (one.key.startsWith("0-") ? suspended : other).add(one.key + " " + one.reconsumeTimes));
        return Facts.of("suspended", suspended, "other", other);
    }

    /** maxReconsumeTimes=2 with an orderly listener: then a dead letter, and the queue goes on. */
    private static JSONObject maximum(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.setMaxReconsumeTimes(2);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            deliveries.add(messages, "");
            return messages.get(0).getKeys().equals("0-0") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        sendRounds(world, topic, 1, 0, 3);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(5, World.WAIT_MS, SETTLE_MS);
        List<MessageExt> dead = world.raw.read("%DLQ%" + group, 0, 1, World.WAIT_MS);
        return Facts.of("given", Facts.each(given, one -> one.key + " " + one.reconsumeTimes),
            "dead", Facts.each(dead, one -> one.getKeys() + " " + one.getReconsumeTimes()),
            "letterTopic", Facts.each(dead, one -> topic.equals(one.getProperty("RETRY_TOPIC"))));
    }

    /** One queue: one order for all, however many members the group has. */
    private static JSONObject global(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        Deliveries deliveries = new Deliveries();
        orderly(world, group, topic, deliveries, 0);
        orderly(world, group, topic, deliveries, 0);
        for (int i = 0; i < 60; i++) {
            world.producer().send(World.message(topic, "tag", "0-" + i));
        }
        List<Deliveries.Delivery> given = deliveries.awaitKeys(60, World.WAIT_MS);
        return Facts.of("inversions", inversions(given), "distinct", Deliveries.distinct(given).size());
    }

    /** ORDER_TOPIC_CONFIG: producers see the queues an operator fixed, not those that there are. */
    private static JSONObject configInRoute(World world) throws Exception {
        String topic = world.topic(8);
        var kept = world.raw.ask(world.namesrv, PUT_KV_CONFIG,
            Map.of("namespace", "ORDER_TOPIC_CONFIG", "key", topic, "value", world.brokerName + ":3"), null);
        DefaultMQProducer producer = world.ownProducer(world.name("producer"));
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        return Facts.of("code", kept.getCode(), "queues", Facts.sorted(queues, MessageQueue::getQueueId));
    }

    /** Four queues, then eight, then two, while messages are sent and consumed: each arrives, in each queue's order. */
    private static JSONObject growAndShrink(World world) throws Exception {
        String topic = world.topic(4);
        String group = world.group();
        DefaultMQProducer producer = world.ownProducer(world.name("producer"));
        producer.start();
        Deliveries deliveries = new Deliveries();
        DefaultMQPushConsumer consumer = orderly(world, group, topic, deliveries, 0);
        AtomicBoolean over = new AtomicBoolean();
        AtomicInteger sent = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        Thread sender = new Thread(() -> {
            while (!over.get()) {
                try {
                    producer.send(World.message(topic, "tag", "0-" + sent.get()));
                    sent.incrementAndGet();
                    Thread.sleep(5);
                } catch (Exception problem) {
                    failed.incrementAndGet();
                }
            }
        });
        sender.start();
        world.updateTopic(topic, 8, 8);
        boolean grown = World.within(World.WAIT_MS, () -> World.queuesOf(consumer, topic) == 8);
        // The rule for shrinking: first nobody writes there any more, then nobody reads.
        world.updateTopic(topic, 8, 2);
        World.within(World.WAIT_MS, () -> producer.fetchPublishMessageQueues(topic).size() == 2);
        Thread.sleep(2_000);
        over.set(true);
        sender.join();
        deliveries.awaitKeys(sent.get(), World.WAIT_MS);
        world.updateTopic(topic, 2, 2);
        boolean shrunk = World.within(World.WAIT_MS, () -> World.queuesOf(consumer, topic) == 2);
        int missing = sent.get() - Deliveries.distinct(deliveries.now()).size();
        return Facts.of("grown", grown, "shrunk", shrunk, "refused", failed.get(), "missing", missing);
    }
}
