import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.types.CopyableValue;
import org.apache.flink.types.StringValue;
import org.apache.flink.util.Collector;

/**
 * Rules over sliding windows, by hand on Flink: for each key a queue of payments with running totals, on the heap.
 *
 * <p>Arguments: payments as CSV (id, time in ms, amount, fields); how many of them are not measured; a file for alerts;
 * ms between checkpoints, 0 for none; cores; then a rule each, as id;function;window in ms;limit;places of its fields
 * with commas between. Without rules only the source runs. Prints a line of JSON.
 */
public final class TeamQueue {
    private static final int FIELDS = 10;
    private static final long SETTLE_MS = 3_000;

    /** What was taken when the measured payments began and when the last task ended; all tasks are in this process. */
    private static long startedNs, startedCpuNs, endedNs, endedCpuNs, payments;

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set(StateBackendOptions.STATE_BACKEND, "hashmap");
        settings.set(PipelineOptions.GENERIC_TYPES, false);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "disable");
        long checkpointMs = Long.parseLong(arguments[3]);
        if (checkpointMs > 0) {
            settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
            String folder = Path.of(arguments[2] + ".checkpoints").toUri().toString();
            settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder);
        }
        StreamExecutionEnvironment flink =
            StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[4]), settings);
        flink.getConfig().enableObjectReuse();
        if (checkpointMs > 0) {
            flink.enableCheckpointing(checkpointMs);
        }
        Payments source = new Payments(arguments[0], Long.parseLong(arguments[1]));
        DataStream<Payment> payments = flink.addSource(source, TypeInformation.of(Payment.class));
        List<DataStream<String>> alerts = new ArrayList<>();
        for (String text : Arrays.copyOfRange(arguments, 5, arguments.length)) {
            Rule rule = new Rule(text);
            Touch touch = new Touch();
            DataStream<Touch> touches = payments.map(payment -> touch.of(payment, rule))
                .returns(new ValueTypeInfo<>(Touch.class)).setParallelism(1);
            alerts.add(touches.keyBy(each -> each.key).process(new Windows(rule)).name(rule.id));
        }
        if (alerts.isEmpty()) {
            payments.sinkTo(new DiscardingSink<>()).setParallelism(1);
        } else {
            DataStream<String> first = alerts.remove(0);
            first.union(alerts.toArray(new DataStream[0])).sinkTo(new AlertFile(arguments[2])).setParallelism(1);
        }
        flink.execute();
        System.out.printf(Locale.ROOT,
            "{\"events\": %d, \"ms\": %d, \"cpu_s\": %.3f, \"rss_bytes\": %d, \"flink\": \"%s\"}%n",
            TeamQueue.payments, (endedNs - startedNs) / 1_000_000, (endedCpuNs - startedCpuNs) / 1e9, residentBytes(),
            EnvironmentInformation.getVersion());
    }

    private static synchronized void start() {
        startedNs = System.nanoTime();
        startedCpuNs = cpuNs();
    }

    private static synchronized void end() {
        endedNs = System.nanoTime();
        endedCpuNs = cpuNs();
    }

    private static long cpuNs() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static long residentBytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
            }
        }
        return 0;
    }

    /** A rule over payments that have the same values in some fields. */
    record Rule(String id, String function, long windowMs, long limit, int[] fields) implements java.io.Serializable {
        Rule(String text) {
            this(text.split(";"));
        }

        private Rule(String[] parts) {
            this(parts[0], parts[1], Long.parseLong(parts[2]), Long.parseLong(parts[3]),
                Arrays.stream(parts[4].split(",")).mapToInt(Integer::parseInt).toArray());
        }
    }

    /** A payment as it arrives. It never leaves the task of the source, so it is never written. */
    public static class Payment {
        public String id;
        public long timeMs;
        public long amount;
        public String[] fields = new String[FIELDS];
    }

    /** What a rule needs of a payment: this goes from task to task, and writes itself. */
    public static class Touch implements CopyableValue<Touch> {
        private String key;
        private String id;
        private long timeMs;
        private long amount;

        Touch of(Payment payment, Rule rule) {
            String first = payment.fields[rule.fields[0]];
            key = rule.fields.length == 1 ? first : first + '\u0001' + payment.fields[rule.fields[1]];
            id = payment.id;
            timeMs = payment.timeMs;
            amount = payment.amount;
            return this;
        }

        @Override
        public void write(DataOutputView out) throws IOException {
            StringValue.writeString(key, out);
            StringValue.writeString(id, out);
            out.writeLong(timeMs);
            out.writeLong(amount);
        }

        @Override
        public void read(DataInputView in) throws IOException {
            key = StringValue.readString(in);
            id = StringValue.readString(in);
            timeMs = in.readLong();
            amount = in.readLong();
        }

        @Override
        public void copy(DataInputView in, DataOutputView out) throws IOException {
            StringValue.copyString(in, out);
            StringValue.copyString(in, out);
            out.write(in, 2 * Long.BYTES);
        }

        @Override
        public void copyTo(Touch other) {
            other.key = key;
            other.id = id;
            other.timeMs = timeMs;
            other.amount = amount;
        }

        @Override
        public Touch copy() {
            Touch other = new Touch();
            copyTo(other);
            return other;
        }

        @Override
        public int getBinaryLength() {
            return -1;
        }
    }

    /** Payments of a key, oldest first, in two rings, and their sum. A checkpoint writes its fields. */
    public static class Queue {
        public long[] times = new long[4];
        public long[] amounts = new long[4];
        public int first;
        public int size;
        public long sum;

        void dropBefore(long timeMs) {
            while (size > 0 && times[first] < timeMs) {
                sum -= amounts[first];
                first = first + 1 & times.length - 1;
                size--;
            }
        }

        /** For a maximum: payments that are no larger than a newer one are never asked for again. */
        void dropUpTo(long amount) {
            while (size > 0 && amounts[first + size - 1 & times.length - 1] <= amount) {
                size--;
            }
        }

        void add(long timeMs, long amount) {
            if (size == times.length) {
                times = grown(times);
                amounts = grown(amounts);
                first = 0;
            }
            int place = first + size & times.length - 1;
            times[place] = timeMs;
            amounts[place] = amount;
            sum += amount;
            size++;
        }

        private long[] grown(long[] ring) {
            long[] larger = new long[2 * ring.length];
            System.arraycopy(ring, first, larger, 0, ring.length - first);
            System.arraycopy(ring, 0, larger, ring.length - first, first);
            return larger;
        }
    }

    /** Evaluates a rule for each payment, over what its key has in the window, which holds both of its ends. */
    static class Windows extends KeyedProcessFunction<String, Touch, String> {
        private final Rule rule;
        private final boolean largest;
        private final boolean counts;
        private final boolean averages;
        private transient ValueState<Queue> queues;

        Windows(Rule rule) {
            this.rule = rule;
            largest = rule.function.equals("max");
            counts = rule.function.equals("count");
            averages = rule.function.equals("avg");
        }

        @Override
        public void open(OpenContext context) {
            queues = getRuntimeContext().getState(new ValueStateDescriptor<>("queue", TypeInformation.of(Queue.class)));
        }

        @Override
        public void processElement(Touch touch, Context context, Collector<String> alerts) throws Exception {
            Queue queue = queues.value();
            if (queue == null) {
                queue = new Queue();
                queues.update(queue); // On the heap the queue itself is kept, so that later changes need no update.
            }
            queue.dropBefore(touch.timeMs - rule.windowMs);
            if (largest) {
                queue.dropUpTo(touch.amount);
            }
            queue.add(touch.timeMs, touch.amount);
            long value = counts ? queue.size : largest ? queue.amounts[queue.first] : queue.sum;
            if (value > (averages ? rule.limit * queue.size : rule.limit)) {
                alerts.collect(rule.id + ',' + touch.id + ',' + (averages ? (double) value / queue.size : value));
            }
        }

        @Override
        public void close() {
            end();
        }
    }

    /** Reads payments in the order of the file. Before the first that is measured it waits: the others get done. */
    static class Payments implements SourceFunction<Payment> {
        private final String path;
        private final long notMeasured;
        private volatile boolean cancelled;

        Payments(String path, long notMeasured) {
            this.path = path;
            this.notMeasured = notMeasured;
        }

        @Override
        public void run(SourceContext<Payment> context) throws Exception {
            Payment payment = new Payment();
            byte[] block = new byte[1 << 20];
            long read = 0;
            try (InputStream file = Files.newInputStream(Path.of(path))) {
                int filled = 0;
                for (int more; !cancelled && (more = file.read(block, filled, block.length - filled)) > 0;) {
                    int line = 0;
                    filled += more;
                    for (int end; (end = lineEnd(block, line, filled)) >= 0; line = end + 1) {
                        if (read++ == notMeasured) {
                            Thread.sleep(SETTLE_MS);
                            start();
                        }
                        parse(block, line, payment);
                        synchronized (context.getCheckpointLock()) {
                            context.collect(payment);
                        }
                    }
                    System.arraycopy(block, line, block, 0, filled - line);
                    filled -= line;
                }
            }
            payments = read - notMeasured;
            end();
        }

        private static int lineEnd(byte[] block, int from, int to) {
            for (int place = from; place < to; place++) {
                if (block[place] == '\n') {
                    return place;
                }
            }
            return -1;
        }

        private static void parse(byte[] line, int from, Payment payment) {
            int place = from;
            for (int column = -3; column < FIELDS; column++) {
                int first = place;
                long number = 0;
                for (; line[place] != ',' && line[place] != '\n'; place++) {
                    number = 10 * number + line[place] - '0';
                }
                if (column == -2) {
                    payment.timeMs = number;
                } else if (column == -1) {
                    payment.amount = number;
                } else {
                    String text = new String(line, first, place - first, StandardCharsets.ISO_8859_1);
                    if (column < 0) {
                        payment.id = text;
                    } else {
                        payment.fields[column] = text;
                    }
                }
                place++;
            }
        }

        @Override
        public void cancel() {
            cancelled = true;
        }
    }

    /** Writes alerts, a line each. */
    record AlertFile(String path) implements Sink<String> {
        @Override
        public SinkWriter<String> createWriter(WriterInitContext context) throws IOException {
            BufferedWriter file = Files.newBufferedWriter(Path.of(path));
            return new SinkWriter<>() {
                @Override
                public void write(String alert, Context each) throws IOException {
                    file.write(alert);
                    file.newLine();
                }

                @Override
                public void flush(boolean ended) throws IOException {
                    file.flush();
                }

                @Override
                public void close() throws IOException {
                    file.close();
                }
            };
        }
    }
}
