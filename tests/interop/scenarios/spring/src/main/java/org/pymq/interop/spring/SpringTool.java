package org.pymq.interop.spring;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Service;

/**
 * An application as users of the starter write it: listeners by annotation, a template to send with.
 *
 * Configured from outside (rocketmq.name-server, rocketmq.producer.group), it sends, receives, asks and is answered,
 * prints what it saw as "FACT name value" lines and ends.
 */
@SpringBootApplication
public class SpringTool {
    private static final int WAIT_SECONDS = 60;
    private static final int COUNT = 10;
    private static final BlockingQueue<String> PLAIN = new LinkedBlockingQueue<>();
    private static final BlockingQueue<String> ORDERED = new LinkedBlockingQueue<>();
    private static final BlockingQueue<String> FAILED = new LinkedBlockingQueue<>();
    private static final BlockingQueue<String> COMMITTED = new LinkedBlockingQueue<>();

    /** A person, to see that payloads are converted. */
    public static class Person {
        public String name;
        public int age;
    }

    @Service
    @RocketMQMessageListener(topic = "spring-plain", consumerGroup = "spring-plain-group", selectorExpression = "one || two")
    public static class Plain implements RocketMQListener<Person> {
        @Override
        public void onMessage(Person person) {
            PLAIN.add(person.name + " " + person.age);
        }
    }

    @Service
    @RocketMQMessageListener(topic = "spring-ordered", consumerGroup = "spring-ordered-group",
        consumeMode = ConsumeMode.ORDERLY)
    public static class Ordered implements RocketMQListener<String> {
        @Override
        public void onMessage(String number) {
            ORDERED.add(number);
        }
    }

    /** Fails once: the starter sends it back, the broker gives it again. */
    @Service
    @RocketMQMessageListener(topic = "spring-failing", consumerGroup = "spring-failing-group")
    public static class Failing implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            FAILED.add(String.valueOf(message.getReconsumeTimes()));
            if (message.getReconsumeTimes() == 0) {
                throw new IllegalStateException("as a listener may");
            }
        }
    }

    @Service
    @RocketMQMessageListener(topic = "spring-asked", consumerGroup = "spring-asked-group")
    public static class Asked implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String question) {
            return "about " + question + ": yes";
        }
    }

    @Service
    @RocketMQMessageListener(topic = "spring-committed", consumerGroup = "spring-committed-group")
    public static class Committed implements RocketMQListener<String> {
        @Override
        public void onMessage(String text) {
            COMMITTED.add(text);
        }
    }

    @RocketMQTransactionListener
    public static class Decider implements RocketMQLocalTransactionListener {
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return "commit".equals(argument) ? RocketMQLocalTransactionState.COMMIT
                : "rollback".equals(argument) ? RocketMQLocalTransactionState.ROLLBACK
                : RocketMQLocalTransactionState.UNKNOWN;
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return RocketMQLocalTransactionState.COMMIT;
        }
    }

    private static List<String> take(BlockingQueue<String> queue, int count) throws InterruptedException {
        List<String> taken = new ArrayList<>();
        while (taken.size() < count) {
            String next = queue.poll(WAIT_SECONDS, TimeUnit.SECONDS);
            if (next == null) {
                break;
            }
            taken.add(next);
        }
        return taken;
    }

    private static Person person(int number) {
        Person person = new Person();
        person.name = "person-" + number;
        person.age = number;
        return person;
    }

    private static Map<String, Object> play(RocketMQTemplate template) throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        CountDownLatch asynchronous = new CountDownLatch(1);
        facts.put("sent", template.syncSend("spring-plain:one", person(1)).getSendStatus());
        template.convertAndSend("spring-plain:three", person(3));
        template.sendOneWay("spring-plain:two", person(2));
        template.asyncSend("spring-plain:two", person(4), new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                asynchronous.countDown();
            }

            @Override
            public void onException(Throwable problem) {
                problem.printStackTrace();
            }
        });
        template.syncSendDelayTimeSeconds("spring-plain:one", person(5), 2);
        facts.put("asynchronous", asynchronous.await(WAIT_SECONDS, TimeUnit.SECONDS));
        for (int i = 0; i < COUNT; i++) {
            template.syncSendOrderly("spring-ordered", String.valueOf(i), "same");
        }
        template.convertAndSend("spring-failing", "fails once");
        facts.put("reply", template.sendAndReceive("spring-asked", "the weather", String.class));
        for (String argument : List.of("commit", "rollback", "unknown")) {
            template.sendMessageInTransaction("spring-committed", MessageBuilder.withPayload(argument).build(), argument);
        }
        facts.put("plain", take(PLAIN, 4).stream().sorted().toList());
        facts.put("ordered", take(ORDERED, COUNT));
        facts.put("failed", take(FAILED, 2));
        facts.put("committed", take(COMMITTED, 2).stream().sorted().toList());
        Thread.sleep(1_000);
        facts.put("more", PLAIN.size() + ORDERED.size() + FAILED.size() + COMMITTED.size());
        return facts;
    }

    public static void main(String[] args) throws Exception {
        ConfigurableApplicationContext context = SpringApplication.run(SpringTool.class, args);
        try {
            play(context.getBean(RocketMQTemplate.class))
                .forEach((name, value) -> System.out.println("FACT " + name + " " + value));
        } catch (Exception problem) {
            problem.printStackTrace(System.out);
        }
        System.out.flush();
        // Each client takes its time to say good-bye; nobody here listens.
        Runtime.getRuntime().halt(0);
    }
}
