package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Requests of the remoting protocol by their codes: what the client's interface does not show or does not ask. */
final class Raw {
    static final int PULL_MESSAGE = 11;
    static final int UPDATE_AND_CREATE_TOPIC = 17;
    static final int CONSUMER_SEND_MSG_BACK = 36;
    static final int VIEW_MESSAGE_BY_ID = 33;
    static final int LOCK_BATCH_MQ = 41;
    static final int UNLOCK_BATCH_MQ = 42;
    static final int GET_ROUTEINFO_BY_TOPIC = 105;
    static final int UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200;
    static final int GET_TOPIC_CONFIG = 351;
    static final int SUCCESS = 0;

    /** The group in whose name queues are read here. */
    static final String READER = "raw-reader";

    /** A pull's flag: the request itself says what it subscribes to, no heartbeat did. */
    static final int FLAG_SUBSCRIPTION = 4;
    private static final int TIMEOUT_MS = 30_000;
    private static final int MESSAGES_MAX = 32;

    private final NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
    private final String broker;

    Raw(String broker) {
        this.broker = broker;
        client.start();
    }

    RemotingCommand ask(String address, int code, Map<String, String> fields, byte[] body) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        request.setExtFields(new HashMap<>(fields));
        request.setBody(body);
        return client.invokeSync(address, request, TIMEOUT_MS);
    }

    RemotingCommand ask(int code, Object... pairs) throws Exception {
        return ask(broker, code, fields(pairs), null);
    }

    RemotingCommand askWithBody(int code, JSONObject body, Object... pairs) throws Exception {
        return ask(broker, code, fields(pairs), JSON.toJSONString(body).getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, String> fields(Object... pairs) {
        Map<String, String> fields = new HashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            fields.put((String) pairs[i], String.valueOf(pairs[i + 1]));
        }
        return fields;
    }

    /** One pull as *group*; with the flag for a subscription of its own, or trusting the group's heartbeat. */
    RemotingCommand pull(String group, String topic, int queueId, long offset, int sysFlag) throws Exception {
        return ask(PULL_MESSAGE, "consumerGroup", group, "topic", topic, "queueId", queueId, "queueOffset", offset,
            "maxMsgNums", MESSAGES_MAX, "sysFlag", sysFlag, "commitOffset", 0, "suspendTimeoutMillis", 0,
            "subscription", "*", "subVersion", 0, "expressionType", "TAG");
    }

    /** All that a queue holds, as stored: bodies stay compressed. A topic that is not there holds nothing. */
    List<MessageExt> read(String topic, int queueId) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        while (true) {
            RemotingCommand answer = pull(READER, topic, queueId, found.size(), FLAG_SUBSCRIPTION);
            if (answer.getCode() != SUCCESS) {
                return found;
            }
            ByteBuffer records = ByteBuffer.wrap(answer.getBody());
            while (records.hasRemaining()) {
                found.add(MessageDecoder.decode(records, true, false));
            }
        }
    }

    /** The same once there are *count* messages; what there is when the time is up. */
    List<MessageExt> read(String topic, int queueId, int count, long timeoutMs) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        List<MessageExt> found = read(topic, queueId);
        while (found.size() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
            found = read(topic, queueId);
        }
        return found;
    }

    /** A record as it lies in the log, once it does: what is in the transient pool is found when it was committed. */
    MessageExt view(long physicalOffset) throws Exception {
        RemotingCommand[] answer = new RemotingCommand[1];
        World.within(TIMEOUT_MS, () -> {
            answer[0] = ask(VIEW_MESSAGE_BY_ID, "offset", physicalOffset);
            return answer[0].getCode() == SUCCESS;
        });
        return MessageDecoder.decode(ByteBuffer.wrap(answer[0].getBody()), true, false);
    }

    /** A topic's configuration as the broker has it, or null. */
    JSONObject topicConfig(String topic) throws Exception {
        RemotingCommand answer = ask(GET_TOPIC_CONFIG, "topic", topic);
        if (answer.getCode() != SUCCESS) {
            return null;
        }
        JSONObject found = JSON.parseObject(new String(answer.getBody(), StandardCharsets.UTF_8));
        JSONObject inner = found.getJSONObject("topicConfig");
        return inner == null ? found : inner;
    }

    void close() {
        client.shutdown();
    }
}
