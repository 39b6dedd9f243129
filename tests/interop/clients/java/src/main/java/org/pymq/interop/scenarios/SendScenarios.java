package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Parts 7 and 10: broadcasting, batches, request and reply, compressed bodies; a broker that cannot take more. */
final class SendScenarios {
    private static final int SETTLE_MS = 1_500;
    private static final int REPLY_TIMEOUT_MS = 10_000;
    private static final int SHORT_TIMEOUT_MS = 1_000;
    private static final int BODY_MAX = 4 << 20;

    private SendScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("broadcast-each-is-given-all", SendScenarios::broadcast);
        all.put("broadcast-resumes-from-its-own-offsets", SendScenarios::broadcastResumes);
        all.put("broadcast-does-not-retry", SendScenarios::broadcastDoesNotRetry);
        all.put("batch-arrives-in-order", SendScenarios::batch);
        all.put("batch-limits", SendScenarios::batchLimits);
        all.put("batch-too-large-for-the-broker", SendScenarios::batchTooLarge);
        all.put("message-too-large-for-the-broker", SendScenarios::messageTooLarge);
        all.put("request-reply", SendScenarios::requestReply);
        all.put("request-reply-asynchronous", SendScenarios::requestReplyAsynchronous);
        all.put("request-times-out", SendScenarios::requestTimesOut);
        all.put("request-reply-after-the-requester-left", SendScenarios::requesterLeft);
        all.put("compressed-zlib", world -> compressed(world, CompressionType.ZLIB));
        all.put("compressed-lz4", world -> compressed(world, CompressionType.LZ4));
        all.put("compressed-zstd", world -> compressed(world, CompressionType.ZSTD));
        all.put("flow-control-pool-exhausted", SendScenarios::poolExhausted);
    }

    private static Deliveries consumeBroadcast(World world, String group, String topic, String instance, boolean well)
        throws Exception {
        return consumeBroadcast(world.consumer(group), world, topic, instance, well);
    }

    private static Deliveries consumeBroadcast(
        DefaultMQPushConsumer consumer, World world, String topic, String instance, boolean well) throws Exception {
        World.broadcasting(consumer);
        if (instance != null) {
            consumer.setInstanceName(instance);
        }
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> well
            ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        return deliveries;
    }

    private static JSONObject broadcast(World world) throws Exception {
        String topic = world.topic(4);
        String group = world.group();
        List<Deliveries> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            members.add(consumeBroadcast(world, group, topic, null, true));
        }
        OrderScenarios.sendRounds(world, topic, 4, 0, 5);
        List<Integer> counts = new ArrayList<>();
        for (Deliveries member : members) {
            counts.add(Deliveries.distinct(member.await(20, World.WAIT_MS)).size());
        }
        return Facts.of("members", counts);
    }

    /** The offsets are the member's own, in a file: who comes back goes on where he was. */
    private static JSONObject broadcastResumes(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        String instance = world.name("instance");
        DefaultMQPushConsumer first = world.consumer(group);
        Deliveries before = consumeBroadcast(first, world, topic, instance, true);
        world.send(topic, "before", 5, 0);
        before.await(5, World.WAIT_MS);
        Thread.sleep(SETTLE_MS);
        first.shutdown();
        world.send(topic, "after", 5, 0);
        Deliveries after = consumeBroadcast(world, group, topic, instance, true);
        List<Deliveries.Delivery> given = after.awaitAndSettle(5, World.WAIT_MS, SETTLE_MS);
        return Facts.of("before", Facts.sorted(before.now(), one -> one.key),
            "after", Facts.sorted(given, one -> one.key));
    }

    private static JSONObject broadcastDoesNotRetry(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        Deliveries deliveries = consumeBroadcast(world, group, topic, null, false);
        world.send(topic, "m", 2, 0);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(2, World.WAIT_MS, 2 * SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key + " " + one.reconsumeTimes));
    }

    private static List<Message> messages(String topic, int count, int bodySize) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = World.message(topic, "tag", "0-" + i);
            if (bodySize > 0) {
                message.setBody(new byte[bodySize]);
            }
            message.putUserProperty("number", String.valueOf(i));
            batch.add(message);
        }
        return batch;
    }

    private static JSONObject batch(World world) throws Exception {
        String topic = world.topic(1);
        SendResult sent = world.producer().send(messages(topic, 20, 0));
        List<MessageExt> stored = world.raw.read(topic, 0, 20, World.WAIT_MS);
        return Facts.of("status", sent.getSendStatus().name(), "ids", sent.getMsgId().split(",").length,
            "offsetIds", sent.getOffsetMsgId().split(",").length, "queueOffset", sent.getQueueOffset(),
            "numbers", Facts.each(stored, one -> one.getProperty("number")),
            "uniqueKeys", List.of(sent.getMsgId().split(","))
                .equals(Facts.each(stored, one -> one.getProperty("UNIQ_KEY"))));
    }

    /** What a batch may not be: of two topics, delayed, for a retry topic, empty. */
    private static JSONObject batchLimits(World world) throws Exception {
        String topic = world.topic(1);
        List<Message> twoTopics = messages(topic, 1, 0);
        twoTopics.addAll(messages(world.topic(1), 1, 0));
        List<Message> delayed = messages(topic, 2, 0);
        delayed.forEach(message -> message.setDelayTimeLevel(1));
        List<Message> retry = messages("%RETRY%" + world.group(), 2, 0);
        List<Message> waiting = messages(topic, 2, 0);
        waiting.get(1).setWaitStoreMsgOK(false);
        DefaultMQProducer producer = world.producer();
        return Facts.of("twoTopics", Facts.outcome(() -> producer.send(twoTopics)),
            "delayed", Facts.outcome(() -> producer.send(delayed)),
            "retry", Facts.outcome(() -> producer.send(retry)),
            "waiting", Facts.outcome(() -> producer.send(waiting)),
            "empty", Facts.outcome(() -> producer.send(new ArrayList<Message>())));
    }

    private static JSONObject tooLarge(World world, List<Message> batch, String topic) throws Exception {
        String checked = Facts.outcome(() -> world.producer().send(batch));
        DefaultMQProducer careless = world.ownProducer(world.name("producers"));
        careless.setMaxMessageSize(4 * BODY_MAX);
        careless.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        careless.start();
        String unchecked = batch.size() > 1 ? Facts.outcome(() -> careless.send(batch))
            : Facts.outcome(() -> careless.send(batch.get(0)));
        String fits = Facts.outcome(() -> careless.send(messages(topic, 2, BODY_MAX / 8)));
        return Facts.of("client", checked, "broker", unchecked, "half", fits,
            "stored", world.raw.read(topic, 0, 2, World.WAIT_MS).size());
    }

    /** The client looks first; where it does not, the broker does. */
    private static JSONObject batchTooLarge(World world) throws Exception {
        String topic = world.topic(1);
        return tooLarge(world, messages(topic, 5, BODY_MAX / 4), topic);
    }

    private static JSONObject messageTooLarge(World world) throws Exception {
        String topic = world.topic(1);
        return tooLarge(world, messages(topic, 1, BODY_MAX + 1), topic);
    }

    /** A consumer that answers each request with its body and a word. */
    private static Deliveries replying(World world, String topic, int afterMs) throws Exception {
        DefaultMQProducer producer = world.ownProducer(world.name("repliers"));
        producer.start();
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> {
            try {
                Thread.sleep(afterMs);
                for (MessageExt message : messages) {
                    byte[] body = (new String(message.getBody()) + ", answered").getBytes();
                    producer.send(MessageUtil.createReplyMessage(message, body), REPLY_TIMEOUT_MS);
                }
            } catch (Exception problem) {
                problem.printStackTrace();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        World.within(World.WAIT_MS, () -> World.queuesOf(consumer, topic) > 0);
        return deliveries;
    }

    private static DefaultMQProducer requester(World world) throws Exception {
        DefaultMQProducer producer = world.ownProducer(world.name("requesters"));
        producer.start();
        return producer;
    }

    private static JSONObject requestReply(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries requests = replying(world, topic, 0);
        DefaultMQProducer producer = requester(world);
        List<String> replies = new ArrayList<>();
        Message reply = null;
        for (String key : List.of("one", "two", "three")) {
            reply = producer.request(World.message(topic, "tag", key), REPLY_TIMEOUT_MS);
            replies.add(new String(reply.getBody()));
        }
        return Facts.of("replies", replies, "replyTopic", reply.getTopic(),
            "request", Facts.properties(requests.now().get(0).message),
            "reply", Facts.properties(reply));
    }

    private static JSONObject requestReplyAsynchronous(World world) throws Exception {
        String topic = world.topic(1);
        replying(world, topic, 0);
        CompletableFuture<Message> replied = new CompletableFuture<>();
        requester(world).request(World.message(topic, "tag", "m"), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                // The client calls once when the request is sent, without a reply, and once more with it.
                if (reply != null) {
                    replied.complete(reply);
                }
            }

            @Override
            public void onException(Throwable problem) {
                replied.completeExceptionally(problem);
            }
        }, REPLY_TIMEOUT_MS);
        return Facts.of("reply", new String(replied.get(World.WAIT_MS, TimeUnit.MILLISECONDS).getBody()));
    }

    private static JSONObject requestTimesOut(World world) throws Exception {
        String topic = world.topic(1);
        DefaultMQProducer producer = requester(world);
        return Facts.of("outcome",
            Facts.outcome(() -> producer.request(World.message(topic, "tag", "m"), SHORT_TIMEOUT_MS)),
            "stored", world.raw.read(topic, 0, 1, World.WAIT_MS).size());
    }

    /** An answer to somebody who hung up is refused, and nothing else suffers. */
    private static JSONObject requesterLeft(World world) throws Exception {
        String topic = world.topic(1);
        DefaultMQProducer leaving = requester(world);
        Facts.outcome(() -> leaving.request(World.message(topic, "tag", "m"), SHORT_TIMEOUT_MS));
        leaving.shutdown();
        Thread.sleep(500);
        DefaultMQProducer replier = world.producer();
        List<String> outcomes = new ArrayList<>();
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> {
            synchronized (outcomes) {
                outcomes.add(Facts.outcome(
                    () -> replier.send(MessageUtil.createReplyMessage(messages.get(0), new byte[] {1}))));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        deliveries.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        synchronized (outcomes) {
            return Facts.of("reply", new ArrayList<>(outcomes));
        }
    }

    /** The broker keeps a compressed body and its flags as they were sent; the consumer sees what was meant. */
    private static JSONObject compressed(World world, CompressionType type) throws Exception {
        String topic = world.topic(1);
        DefaultMQProducer producer = world.ownProducer(world.name("producers"));
        // A setter that 4.9.8 does not have: it compresses with zlib.
        DefaultMQProducer.class.getMethod("setCompressType", CompressionType.class).invoke(producer, type);
        producer.setCompressMsgBodyOverHowmuch(1024);
        producer.start();
        byte[] body = new byte[20_000];
        Arrays.fill(body, (byte) 'x');
        SendResult sent = producer.send(new Message(topic, "tag", "m", body));
        MessageExt stored = world.raw.view(MessageDecoder.decodeMessageId(sent.getOffsetMsgId()).getOffset());
        List<Deliveries.Delivery> given = world.consume(world.group(), topic).await(1, World.WAIT_MS);
        return Facts.of("sysFlag", stored.getSysFlag(), "smaller", stored.getBody().length < body.length / 10,
            "given", Arrays.equals(body, given.get(0).message.getBody()));
    }

    /** A transient pool of two small buffers that are written out too seldom, its broker's setting, and no waiting. */
    private static JSONObject poolExhausted(World world) throws Exception {
        String topic = world.topic(1);
        DefaultMQProducer producer = world.ownProducer(world.name("producers"));
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        List<CompletableFuture<String>> sends = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            Message message = World.message(topic, "tag", "m-" + i);
            byte[] body = new byte[30_000];
            // Nothing that the client could compress.
            ThreadLocalRandom.current().nextBytes(body);
            message.setBody(body);
            CompletableFuture<String> outcome = new CompletableFuture<>();
            sends.add(outcome);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    outcome.complete("ok");
                }

                @Override
                public void onException(Throwable problem) {
                    outcome.complete("code " + Facts.code(problem));
                }
            });
        }
        Set<String> outcomes = new TreeSet<>();
        for (CompletableFuture<String> outcome : sends) {
            outcomes.add(outcome.get(World.WAIT_MS, TimeUnit.MILLISECONDS));
        }
        return Facts.of("outcomes", outcomes);
    }
}
