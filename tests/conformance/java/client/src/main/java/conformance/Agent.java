package conformance;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * A RocketMQ client under remote control.
 *
 * One JSON object a line on standard input ({"id": 1, "op": "send", ...}), one JSON object a line on standard output
 * ({"id": 1, "ok": true, ...}). Every request runs in a thread of its own, so a waiting one holds up nobody and answers may
 * come in another order. Closing standard input shuts every client down in good order and ends the process.
 */
public final class Agent {
    interface Operation {
        Object run(Request request) throws Exception;
    }

    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().create();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        // Whatever the libraries print must not end up between our answers.
        System.setOut(System.err);
        Map<String, Operation> operations = new LinkedHashMap<>();
        operations.put("ping", request -> "pong");
        operations.put("props", request -> {
            System.setProperty(request.text("key"), request.text("value"));
            return true;
        });
        Producers producers = new Producers(operations);
        PushConsumers pushConsumers = new PushConsumers(operations);
        PullConsumers pullConsumers = new PullConsumers(operations);
        Transactions transactions = new Transactions(operations);
        RequestReply requestReply = new RequestReply(operations);
        Timers timers = new Timers(operations);
        Admin.register(operations);

        ExecutorService threads = Executors.newCachedThreadPool(body -> {
            Thread thread = new Thread(body, "operation");
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject json = JsonParser.parseString(line).getAsJsonObject();
            threads.execute(() -> answer(operations, new Request(json), answers));
        }
        requestReply.close();
        pushConsumers.close();
        pullConsumers.close();
        transactions.close();
        timers.close();
        producers.close();
        System.exit(0);
    }

    private static void answer(Map<String, Operation> operations, Request request, PrintStream answers) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", request.number("id", 0));
        try {
            Operation operation = operations.get(request.text("op"));
            if (operation == null) {
                throw new IllegalArgumentException("no such operation: " + request.text("op"));
            }
            answer.put("result", operation.run(request));
            answer.put("ok", true);
        } catch (Throwable error) {
            answer.put("ok", false);
            answer.putAll(describe(error));
        }
        byte[] line = (GSON.toJson(answer) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (answers) {
            answers.write(line, 0, line.length);
            answers.flush();
        }
    }

    static Map<String, Object> describe(Throwable error) {
        while (error instanceof InvocationTargetException && error.getCause() != null) {
            error = error.getCause();
        }
        Map<String, Object> description = new LinkedHashMap<>();
        description.put("error", error.getClass().getSimpleName());
        description.put("message", String.valueOf(error.getMessage()));
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                description.put("code", ((MQBrokerException) cause).getResponseCode());
                break;
            }
            if (cause instanceof MQClientException) {
                description.put("code", ((MQClientException) cause).getResponseCode());
            }
        }
        ByteArrayOutputStream trace = new ByteArrayOutputStream();
        error.printStackTrace(new PrintStream(trace, true));
        description.put("trace", trace.toString(StandardCharsets.UTF_8));
        return description;
    }

    private Agent() {
    }
}
