package buckets;

import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Answers Python's calls on the store of a running task, and hands results over to the driver's Python; one in each JVM.
 *
 * A connection is a worker's, and stays for all its tasks. A call is four bytes with its length, one that says what it is,
 * and what it is about; an answer has its length too, or -1 and then that of an error's text. That a store is complete has
 * none. All numbers are little-endian.
 * Only who has been told the secret of this JVM reaches a store.
 */
final class StateServer implements Runnable {
    private static final String FOLDER = "spark.python.unix.domain.socket.dir", ANNOUNCED = "buckets.state";
    private static final String SECRET = UUID.randomUUID().toString();
    private static final int OPEN_WITHIN_S = 600, RETRY_MS = 100, LISTED_BYTES = 1 << 20;
    private static final Map tasks = new ConcurrentHashMap(), results = new ConcurrentHashMap();
    private static ServerSocketChannel server;
    private static String path;

    private final SocketChannel connection;

    private StateServer(SocketChannel connection) {
        this.connection = connection;
    }

    /** Returns where the server of this JVM is reached, which is started with the first call. */
    static synchronized String path() {
        if (server == null) {
            try {
                String folder = SparkEnv.get().conf().get(FOLDER, System.getProperty("java.io.tmpdir"));
                Files.createDirectories(Paths.get(folder));
                Path socket = Files.createTempDirectory(Paths.get(folder), "state").resolve("s");
                server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
                server.bind(UnixDomainSocketAddress.of(socket));
                path = socket.toString();
                socket.getParent().toFile().deleteOnExit();
                socket.toFile().deleteOnExit();
            } catch (IOException error) {
                throw new RuntimeException("cannot open a socket for the state's calls: " + error, error);
            }
            start(new Listener());
        }
        return path;
    }

    /** Removes the socket, where the JVM will not end by itself. */
    static synchronized void stop() throws IOException {
        if (server != null) {
            server.close();
            Files.delete(Paths.get(path));
            Files.delete(Paths.get(path).getParent());
            server = null;
        }
    }

    static void start(Runnable work) {
        Thread thread = new Thread(work, "state calls");
        thread.setDaemon(true);
        thread.start();
    }

    /** Waits for workers. */
    static final class Listener implements Runnable {
        @Override
        public void run() {
            ServerSocketChannel listening = server;
            while (listening.isOpen()) {
                try {
                    start(new StateServer(listening.accept()));
                } catch (IOException error) {
                    try {  // It was closed, or there is no descriptor left at the moment.
                        Thread.sleep(RETRY_MS);
                    } catch (InterruptedException interrupted) {
                        return;
                    }
                }
            }
        }
    }

    /** Tells the Python of a task how its store will be reached. Where the driver runs tasks, they have their properties in common. */
    static void announce(TaskContext task) {
        tasks.put(nameOf(task), new CompletableFuture());
        task.getLocalProperties().setProperty(ANNOUNCED, path() + "\n" + SECRET);
        task.addTaskCompletionListener((TaskCompletionListener) new Forget());
    }

    /** Lets no call go on when a task has ended. */
    static final class Forget implements TaskCompletionListener {
        @Override
        public void onTaskCompletion(TaskContext task) {
            close(task);
        }
    }

    static void open(TaskContext task, TaskStore store) {
        ((CompletableFuture) tasks.get(nameOf(task))).complete(store);
    }

    private static String nameOf(TaskContext task) {
        return SECRET + " " + task.taskAttemptId();
    }

    static void close(TaskContext task) {
        CompletableFuture store = (CompletableFuture) tasks.remove(nameOf(task));
        if (store != null) {
            store.completeExceptionally(new IllegalStateException("the task has ended"));
        }
    }

    /** Keeps results until they are asked for; returns how: where, and under what name. */
    static String keep(Object[] rows) {
        String name = UUID.randomUUID().toString();
        results.put(name, rows);
        return path() + "\n" + name;
    }

    @Override
    public void run() {
        TaskStore store = null;
        try {
            while (true) {
                ByteBuffer call = read(read(4).getInt());
                byte kind = call.get();
                try {
                    if (kind == 'O') {
                        CompletableFuture opened = (CompletableFuture) tasks.get(text(call));
                        if (opened == null) {
                            throw new IllegalStateException("the task has ended");
                        }
                        store = (TaskStore) opened.get(OPEN_WITHIN_S, TimeUnit.SECONDS);
                        answer(new byte[0][]);
                    } else if (kind == 'F') {
                        Object[] rows = (Object[]) results.remove(text(call));
                        byte[][] strings = new byte[rows.length][];
                        System.arraycopy(rows, 0, strings, 0, rows.length);
                        answer(strings);
                    } else if (kind == 'C') {
                        commit(store);
                    } else {
                        work(store.store, kind, call);
                    }
                } catch (IOException error) {
                    throw error;
                } catch (Throwable error) {
                    refuse(error);
                }
            }
        } catch (IOException error) {
            // The worker has ended.
        } finally {
            try {
                connection.close();
            } catch (IOException error) {
                // It is closed.
            }
        }
    }

    /** Commits while the task goes on, which is told of a fault in its end; to this call there is no answer. */
    private static void commit(TaskStore store) {
        try {
            store.commit();
        } catch (Throwable error) {
            return;
        }
    }

    private void work(StateStore store, byte kind, ByteBuffer call) throws IOException {
        int shard = call.getInt();
        if (kind == 'L') {
            list(store, shard);
            return;
        }
        byte[][] keys = parted(call);
        if (kind == 'G') {
            byte[][] values = new byte[keys.length][];
            for (int i = 0; i < keys.length; i++) {
                UnsafeRow row = store.get(key(shard, keys[i]), "default");
                values[i] = row == null ? new byte[0] : row.getBinary(0);
            }
            answer(values);
            return;
        }
        byte[][] values = kind == 'P' ? parted(call) : null;
        for (int i = 0; i < keys.length; i++) {
            if (kind == 'P') {
                store.put(key(shard, keys[i]), row(values[i]), "default");
            } else {
                store.remove(key(shard, keys[i]), "default");
            }
        }
        answer(new byte[0][]);
    }

    /** Answers with the keys of a shard, in as many answers as it takes, and an empty one. */
    private void list(StateStore store, int shard) throws IOException {
        java.util.ArrayList some = new java.util.ArrayList();
        StateStoreIterator entries = store.iterator("default");
        int bytes = 0;
        try {
            while (entries.hasNext()) {
                ByteBuffer key = ByteBuffer.wrap(((UnsafeRowPair) entries.next()).key().getBinary(0));
                if (key.getInt() == shard) {
                    byte[] rest = new byte[key.remaining()];
                    key.get(rest);
                    some.add(rest);
                    bytes += rest.length;
                }
                if (bytes > LISTED_BYTES) {
                    answer((byte[][]) some.toArray(new byte[some.size()][]));
                    some.clear();
                    bytes = 0;
                }
            }
        } finally {
            entries.close();
        }
        if (!some.isEmpty()) {
            answer((byte[][]) some.toArray(new byte[some.size()][]));
        }
        answer(new byte[0][]);
    }

    private static UnsafeRow key(int shard, byte[] key) {
        return row(ByteBuffer.allocate(4 + key.length).putInt(shard).put(key).array());
    }

    private static UnsafeRow row(byte[] field) {
        UnsafeRowWriter writer = new UnsafeRowWriter(1, field.length + 8);
        writer.reset();
        writer.zeroOutNullBytes();
        writer.write(0, field);
        return writer.getRow();
    }

    /** How many byte strings there are, the length of each, and the bytes of all. */
    private void answer(byte[][] strings) throws IOException {
        int bytes = 4 * (1 + strings.length);
        for (int i = 0; i < strings.length; i++) {
            bytes = Math.addExact(bytes, strings[i].length);
        }
        ByteBuffer answer = littleEndian(new byte[4 + bytes]);
        answer.putInt(bytes).putInt(strings.length);
        for (int i = 0; i < strings.length; i++) {
            answer.putInt(strings[i].length);
        }
        for (int i = 0; i < strings.length; i++) {
            answer.put(strings[i]);
        }
        write(answer);
    }

    private void refuse(Throwable error) throws IOException {
        byte[] text = String.valueOf(error).getBytes(StandardCharsets.UTF_8);
        write(littleEndian(new byte[8 + text.length]).putInt(-1).putInt(text.length).put(text));
    }

    private void write(ByteBuffer answer) throws IOException {
        answer.flip();
        while (answer.hasRemaining()) {
            connection.write(answer);
        }
    }

    private ByteBuffer read(int bytes) throws IOException {
        ByteBuffer read = littleEndian(new byte[bytes]);
        while (read.hasRemaining()) {
            if (connection.read(read) < 0) {
                throw new EOFException();
            }
        }
        read.flip();
        return read;
    }

    private static String text(ByteBuffer call) {
        byte[] text = new byte[call.remaining()];
        call.get(text);
        return new String(text, StandardCharsets.UTF_8);
    }

    private static byte[][] parted(ByteBuffer joined) {
        byte[][] strings = new byte[joined.getInt()][];
        for (int i = 0; i < strings.length; i++) {
            strings[i] = new byte[joined.getInt()];
        }
        for (int i = 0; i < strings.length; i++) {
            joined.get(strings[i]);
        }
        return strings;
    }

    private static ByteBuffer littleEndian(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }
}
