package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Part 6: who is given what: tags, and SQL over properties. */
final class FilterScenarios {
    private static final int SETTLE_MS = 1_000;
    private static final int MESSAGES_MAX = 32;

    private static final List<String> COMPARISONS = List.of(
        "a > 5", "a >= 5", "a < 5", "a <= 5", "a = 5", "a <> 5", "5 < a", "a > -1", "a = 5.0", "a > 4.5",
        "d > 2.5", "d = 0.5", "a BETWEEN 3 AND 5", "a NOT BETWEEN 3 AND 5", "d BETWEEN 0.1 AND 1.7");
    private static final List<String> STRINGS = List.of(
        "s = 'red'", "s <> 'red'", "s IN ('red', 'green')", "s NOT IN ('red', 'green')", "s = 'it''s'",
        "s CONTAINS 'e'", "s NOT CONTAINS 'e'", "s STARTSWITH 'r'", "s NOT STARTSWITH 'r'", "s ENDSWITH 'n'",
        "s NOT ENDSWITH 'n'", "TAGS = 't1'", "TAGS IN ('t0', 't2')");
    private static final List<String> NULLS = List.of(
        "s IS NULL", "s IS NOT NULL", "nowhere IS NULL", "nowhere IS NOT NULL", "nowhere = 1", "nowhere <> 1",
        "nowhere > 0 OR a > 5", "nowhere > 0 AND a > 5", "NOT (nowhere > 0)", "nowhere IN ('x')",
        "nowhere NOT IN ('x')", "nowhere BETWEEN 1 AND 2", "nowhere CONTAINS 'x'", "s = 5");
    private static final List<String> LOGIC = List.of(
        "a > 2 AND a < 6", "a < 2 OR a > 6", "NOT (a > 5)", "NOT (a > 2 AND a < 6)", "a = 1 OR a = 2 AND a = 3",
        "(a = 1 OR a = 2) AND a = 1", "b = TRUE", "b = FALSE", "b <> TRUE", "b IS NULL", "TRUE", "FALSE",
        "a > 2 and s = 'red'", "a > 2 And s Is Not Null");
    private static final List<String> BAD = List.of(
        "a >", "a = ", "(a > 1", "a BETWEEN 1", "a IN (1, 2)", "a > 1 AND", "'x'", "5", "a == 1", "s > 'red'",
        "a BETWEEN 5 AND 3", "a IN ()", "a = 'x", "a > 1)", "CONTAINS 'x'");
    private static final List<String> GOOD = List.of("a > 1", "TRUE", "s IN ('x')", "a IS NULL OR b = FALSE");
    private static final int CHECK_CLIENT_CONFIG = 46;

    private FilterScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("filter-one-tag", world -> tags(world, "red", 1));
        all.put("filter-several-tags", world -> tags(world, "red || green ||  blue", 3));
        all.put("filter-no-such-tag", world -> tags(world, "white", 0));
        all.put("filter-sql-comparisons", world -> pulled(world, COMPARISONS));
        all.put("filter-sql-strings", world -> pulled(world, STRINGS));
        all.put("filter-sql-unknowns", world -> pulled(world, NULLS));
        all.put("filter-sql-logic", world -> pulled(world, LOGIC));
        all.put("filter-sql-push", FilterScenarios::push);
        all.put("filter-sql-two-groups", FilterScenarios::twoGroups);
        all.put("filter-sql-retry", FilterScenarios::retry);
        all.put("filter-sql-bad-expressions", FilterScenarios::bad);
        all.put("filter-sql-bad-pull", FilterScenarios::badPull);
        all.put("filter-sql-bad-push", FilterScenarios::badPush);
        all.put("filter-sql-disabled", FilterScenarios::disabled);
        all.put("filter-class", FilterScenarios::classFilter);
    }

    private static JSONObject tags(World world, String expression, int count) throws Exception {
        String topic = world.topic(1);
        for (String tag : new String[] {"red", "green", "blue", "black", null}) {
            world.producer().send(World.message(topic, tag, "key-" + tag));
        }
        // The hashes of these two are equal: only the client can tell them apart.
        world.producer().send(World.message(topic, "Aa", "key-Aa"));
        world.producer().send(World.message(topic, "BB", "key-BB"));
        Deliveries deliveries = world.consume(world.consumer(world.group()), topic, expression);
        Deliveries hashed = world.consume(world.consumer(world.group()), topic, "Aa");
        hashed.await(1, World.WAIT_MS);
        deliveries.await(count, World.WAIT_MS);
        Thread.sleep(SETTLE_MS);
        return Facts.of("given", Facts.sorted(deliveries.now(), one -> one.key),
            "sameHash", Facts.sorted(hashed.now(), one -> one.key));
    }

    /** Eight messages: a 0 to 7, d a quarter of it and more, s a word or none, b a boolean or none. */
    private static void sendProperties(World world, String topic) throws Exception {
        String[] words = {"red", "green", "it's", "blue", null, "red", "seen", "5"};
        for (int i = 0; i < words.length; i++) {
            Message message = World.message(topic, "t" + i, "m" + i);
            message.putUserProperty("a", String.valueOf(i));
            message.putUserProperty("d", String.valueOf(i * 0.5));
            if (words[i] != null) {
                message.putUserProperty("s", words[i]);
            }
            if (i % 3 != 2) {
                message.putUserProperty("b", String.valueOf(i % 3 == 0));
            }
            world.producer().send(message, world.queue(topic, 0));
        }
        world.raw.read(topic, 0, words.length, World.WAIT_MS);
    }

    /** A pull consumer that knows its broker's version: before its first heartbeat it refuses SQL by itself. */
    private static DefaultMQPullConsumer puller(World world, String topic) throws Exception {
        DefaultMQPullConsumer consumer = world.configure(new DefaultMQPullConsumer(world.group()));
        consumer.start();
        world.closeLater(consumer::shutdown);
        boolean ready = World.within(World.WAIT_MS, () -> !Facts.outcome(
            () -> consumer.pull(world.queue(topic, 0), MessageSelector.bySql("a > 5"), 0, MESSAGES_MAX))
            .equals("MQClientException -1"));
        World.demand(ready, "the client does not know its broker's version");
        return consumer;
    }

    private static String pullAll(DefaultMQPullConsumer consumer, MessageQueue queue, String expression) {
        StringBuilder found = new StringBuilder();
        String outcome = Facts.outcome(() -> {
            long offset = 0;
            // What does not match is skipped: a pull may give nothing and still go forward.
            while (offset < 8) {
                var result = consumer.pull(queue, MessageSelector.bySql(expression), offset, MESSAGES_MAX);
                List<MessageExt> messages = result.getMsgFoundList();
                found.append(messages == null ? "" : messages.stream().map(one -> one.getKeys().substring(1))
                    .collect(Collectors.joining()));
                World.demand(result.getNextBeginOffset() > offset, "no progress: " + result);
                offset = result.getNextBeginOffset();
            }
        });
        return outcome.equals("ok") ? found.toString() : outcome;
    }

    /** For each expression the numbers of the messages that it lets pass. */
    private static JSONObject pulled(World world, List<String> expressions) throws Exception {
        String topic = world.topic(1);
        sendProperties(world, topic);
        DefaultMQPullConsumer consumer = puller(world, topic);
        JSONObject facts = Facts.of();
        expressions.forEach(one -> facts.put(one, pullAll(consumer, world.queue(topic, 0), one)));
        return facts;
    }

    private static int register(World world, String topic, String expression) throws Exception {
        JSONObject subscription = Facts.of("topic", topic, "subString", expression, "expressionType", "SQL92",
            "subVersion", System.currentTimeMillis(), "classFilterMode", false, "tagsSet", List.of(),
            "codeSet", List.of());
        JSONObject body = Facts.of("clientId", "registering", "group", "registering", "subscriptionData", subscription);
        return world.raw.askWithBody(CHECK_CLIENT_CONFIG, body).getCode();
    }

    /** What a client asks before it starts: whether the broker understands its expression. */
    private static JSONObject bad(World world) throws Exception {
        String topic = world.topic(1);
        JSONObject good = Facts.of();
        for (String expression : GOOD) {
            good.put(expression, register(world, topic, expression));
        }
        JSONObject bad = Facts.of();
        for (String expression : BAD) {
            bad.put(expression, register(world, topic, expression));
        }
        return Facts.of("good", good, "bad", bad);
    }

    /** A pull that brings such an expression itself. */
    private static JSONObject badPull(World world) throws Exception {
        return pulled(world, List.of("a > (1", "s > 'red'"));
    }

    private static Deliveries select(World world, String topic, String expression) throws Exception {
        Deliveries deliveries = new Deliveries();
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        world.start(consumer, deliveries, (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        return deliveries;
    }

    /** Registered by heartbeat; messages from before and messages that wake a held pull. */
    private static JSONObject push(World world) throws Exception {
        String topic = world.topic(1);
        sendProperties(world, topic);
        Deliveries deliveries = select(world, topic, "(a > 5 OR s = 'red') AND b IS NOT NULL");
        deliveries.await(3, World.WAIT_MS);
        Thread.sleep(SETTLE_MS);
        sendProperties(world, topic);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(6, World.WAIT_MS, SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key));
    }

    private static JSONObject twoGroups(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries small = select(world, topic, "a < 4");
        Deliveries large = select(world, topic, "a >= 4");
        sendProperties(world, topic);
        small.await(4, World.WAIT_MS);
        large.await(4, World.WAIT_MS);
        Thread.sleep(SETTLE_MS);
        return Facts.of("small", Facts.sorted(small.now(), one -> one.key),
            "large", Facts.sorted(large.now(), one -> one.key));
    }

    /** A group that filters by SQL is given its failed messages again. */
    private static JSONObject retry(World world) throws Exception {
        String topic = world.topic(1);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, MessageSelector.bySql("a IN ('2', '5')"));
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> deliveries.count(messages.get(0)) == 1
            ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        sendProperties(world, topic);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(4, World.WAIT_MS, 2 * SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key + " " + one.reconsumeTimes));
    }

    /** A consumer with an expression that cannot be understood does not start. */
    private static JSONObject badPush(World world) throws Exception {
        String topic = world.topic(1);
        return Facts.of("start", Facts.outcome(() -> select(world, topic, "a > (1")));
    }

    /** enablePropertyFilter=false, its broker's setting. */
    private static JSONObject disabled(World world) throws Exception {
        String topic = world.topic(1);
        sendProperties(world, topic);
        return Facts.of("pull", pullAll(puller(world, topic), world.queue(topic, 0), "a > 5"),
            "start", Facts.outcome(() -> select(world, topic, "a > 5")),
            "tags", Facts.outcome(() -> puller(world, topic).pull(world.queue(topic, 0), "t1", 0, MESSAGES_MAX)));
    }

    /** The filter classes of old: no broker of today runs a stranger's code. */
    @SuppressWarnings("deprecation")
    private static JSONObject classFilter(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        sendProperties(world, topic);
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.subscribe(topic, "org.example.Strange", "class Strange { }");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        World.within(World.WAIT_MS, () -> World.queuesOf(consumer, topic) == 1);
        Thread.sleep(SETTLE_MS);
        return Facts.of("received", deliveries.count(), "pull", world.raw.pull(group, topic, 0, 0, 0).getCode());
    }
}
