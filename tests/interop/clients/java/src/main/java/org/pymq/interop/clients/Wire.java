package org.pymq.interop.clients;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * One JSON object per line, both ways. Any thread may write; a line is never torn.
 *
 * The JSON library is the one both client versions bring along.
 */
public final class Wire {
    private final BufferedReader source = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream target =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    /** The next object, or null at the end of input. */
    public JSONObject receive() throws IOException {
        String text = source.readLine();
        return text == null ? null : JSON.parseObject(text);
    }

    public synchronized void send(JSONObject line) {
        target.println(line.toString(SerializerFeature.WriteMapNullValue));
        target.flush();
    }
}
