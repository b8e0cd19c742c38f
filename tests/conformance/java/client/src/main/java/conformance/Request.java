package conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageQueue;

/** The fields of one request (or of an object inside it), with defaults for those left out. */
final class Request {
    private final JsonObject json;

    Request(JsonObject json) {
        this.json = json;
    }

    boolean has(String field) {
        return json.has(field) && !json.get(field).isJsonNull();
    }

    String text(String field) {
        if (!has(field)) {
            throw new IllegalArgumentException("field missing: " + field);
        }
        return json.get(field).getAsString();
    }

    String text(String field, String otherwise) {
        return has(field) ? json.get(field).getAsString() : otherwise;
    }

    long number(String field, long otherwise) {
        return has(field) ? json.get(field).getAsLong() : otherwise;
    }

    boolean flag(String field, boolean otherwise) {
        return has(field) ? json.get(field).getAsBoolean() : otherwise;
    }

    Request object(String field) {
        return new Request(json.getAsJsonObject(field));
    }

    List<Request> objects(String field) {
        List<Request> found = new ArrayList<>();
        for (JsonElement element : array(field)) {
            found.add(new Request(element.getAsJsonObject()));
        }
        return found;
    }

    List<String> texts(String field) {
        List<String> found = new ArrayList<>();
        for (JsonElement element : array(field)) {
            found.add(element.getAsString());
        }
        return found;
    }

    Map<String, String> textMap(String field) {
        Map<String, String> found = new LinkedHashMap<>();
        if (has(field)) {
            for (Map.Entry<String, JsonElement> entry : json.getAsJsonObject(field).entrySet()) {
                found.put(entry.getKey(), entry.getValue().getAsString());
            }
        }
        return found;
    }

    MessageQueue queue(String field) {
        Request queue = object(field);
        return new MessageQueue(queue.text("topic"), queue.text("broker"), (int) queue.number("queueId", 0));
    }

    private JsonArray array(String field) {
        return has(field) ? json.getAsJsonArray(field) : new JsonArray();
    }
}
