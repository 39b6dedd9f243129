package org.pymq.interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** Messages between JSON and Apache's classes, filled in as the broker's send processor fills them. */
final class MessageJson {
    private static final String HOST_DEFAULT = "127.0.0.1:10911";

    private MessageJson() {
    }

    static MessageExtBrokerInner single(JSONObject source) throws UnknownHostException {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fillEnvelope(message, source);
        message.setFlag(source.getIntValue("flag"));
        message.setBody(body(source));
        Map<String, String> properties = properties(source);
        MessageAccessor.setProperties(message, properties);
        message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        return message;
    }

    /** The batch's envelope (topic, queue, hosts, times, system flags) is its first message's. */
    static MessageExtBatch batch(JSONArray sources) throws UnknownHostException {
        MessageExtBatch batch = new MessageExtBatch();
        fillEnvelope(batch, sources.getJSONObject(0));
        List<Message> messages = new ArrayList<>(sources.size());
        for (int index = 0; index < sources.size(); index++) {
            JSONObject source = sources.getJSONObject(index);
            Message message = new Message(batch.getTopic(), body(source));
            message.setFlag(source.getIntValue("flag"));
            MessageAccessor.setProperties(message, properties(source));
            messages.add(message);
        }
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return batch;
    }

    private static void fillEnvelope(MessageExtBrokerInner message, JSONObject source) throws UnknownHostException {
        message.setTopic(source.getString("topic"));
        message.setQueueId(source.getIntValue("queueId"));
        message.setSysFlag(source.getIntValue("sysFlag"));
        Long born = source.getLong("bornTimestamp");
        message.setBornTimestamp(born == null ? System.currentTimeMillis() : born);
        message.setBornHost(host(source.getString("bornHost")));
        message.setStoreHost(host(source.getString("storeHost")));
        message.setReconsumeTimes(source.getIntValue("reconsumeTimes"));
        message.setPreparedTransactionOffset(source.getLongValue("preparedTransactionOffset"));
    }

    private static byte[] body(JSONObject source) {
        return Base64.getDecoder().decode(source.getString("bodyBase64"));
    }

    /** In the order given: the order of the stored property string is then the test's to choose. */
    private static Map<String, String> properties(JSONObject source) {
        Map<String, String> properties = new LinkedHashMap<>();
        JSONObject given = source.getJSONObject("properties");
        if (given != null) {
            given.forEach((name, value) -> properties.put(name, (String) value));
        }
        return properties;
    }

    /** "1.2.3.4:5" or "[::1]:5"; literals only, so nothing is ever resolved. */
    private static SocketAddress host(String text) throws UnknownHostException {
        String given = text == null ? HOST_DEFAULT : text;
        int colon = given.lastIndexOf(':');
        String address = given.substring(0, colon).replace("[", "").replace("]", "");
        return new InetSocketAddress(InetAddress.getByName(address), Integer.parseInt(given.substring(colon + 1)));
    }

    static JSONObject describe(MessageExt message) {
        return Wire.line("message")
            .fluentPut("topic", message.getTopic())
            .fluentPut("queueId", message.getQueueId())
            .fluentPut("queueOffset", message.getQueueOffset())
            .fluentPut("physicalOffset", message.getCommitLogOffset())
            .fluentPut("storeSize", message.getStoreSize())
            .fluentPut("bodyBase64", Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody()))
            .fluentPut("bodyCrc", message.getBodyCRC())
            .fluentPut("flag", message.getFlag())
            .fluentPut("sysFlag", message.getSysFlag())
            .fluentPut("bornTimestamp", message.getBornTimestamp())
            .fluentPut("bornHost", text(message.getBornHost()))
            .fluentPut("storeTimestamp", message.getStoreTimestamp())
            .fluentPut("storeHost", text(message.getStoreHost()))
            .fluentPut("reconsumeTimes", message.getReconsumeTimes())
            .fluentPut("preparedTransactionOffset", message.getPreparedTransactionOffset())
            .fluentPut("properties", message.getProperties())
            .fluentPut("msgId", message.getMsgId());
    }

    /** As "[address]:port" for IPv6 and "address:port" for IPv4, the forms Python's ipaddress reads back. */
    private static String text(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        String literal = address.getAddress().getHostAddress();
        return (literal.indexOf(':') < 0 ? literal : "[" + literal + "]") + ":" + address.getPort();
    }
}
