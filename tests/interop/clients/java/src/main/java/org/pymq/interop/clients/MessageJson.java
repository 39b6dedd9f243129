package org.pymq.interop.clients;

import com.alibaba.fastjson.JSONObject;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages as the protocol writes them. A body comes as base64 and goes back as its SHA-256. */
final class MessageJson {
    private MessageJson() {
    }

    static Message parse(JSONObject line) {
        byte[] body = Base64.getDecoder().decode(line.getString("bodyBase64"));
        Message message = new Message(line.getString("topic"), line.getString("tag"), line.getString("key"), body);
        JSONObject properties = line.getJSONObject("properties");
        if (properties != null) {
            for (Map.Entry<String, Object> property : properties.entrySet()) {
                message.putUserProperty(property.getKey(), (String) property.getValue());
            }
        }
        return message;
    }

    static JSONObject received(MessageExt message) {
        return new JSONObject()
            .fluentPut("topic", message.getTopic())
            .fluentPut("queueId", message.getQueueId())
            .fluentPut("queueOffset", message.getQueueOffset())
            .fluentPut("msgId", message.getMsgId())
            .fluentPut("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId())
            .fluentPut("key", message.getKeys())
            .fluentPut("tag", message.getTags())
            .fluentPut("properties", message.getProperties())
            .fluentPut("digest", digest(message.getBody()))
            .fluentPut("bodySize", message.getBody().length)
            .fluentPut("storeSize", message.getStoreSize())
            .fluentPut("reconsumeTimes", message.getReconsumeTimes());
    }

    private static String digest(byte[] body) {
        MessageDigest sha256;
        try {
            sha256 = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException problem) {
            throw new IllegalStateException(problem);
        }
        StringBuilder hex = new StringBuilder();
        for (byte octet : sha256.digest(body)) {
            hex.append(String.format("%02x", octet));
        }
        return hex.toString();
    }
}
