package buckets;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;

import scala.Option;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.reflect.ClassTag;
import scala.runtime.AbstractFunction2;

/**
 * Tasks beside each of which a version of Spark's own state store is open, and what reads such stores.
 *
 * The store of a partition has one map of byte strings, whose keys begin with the number of a shard. Python reaches it by way of
 * `StateServer`, and a task's store is committed once Python has put out all.
 */
public final class StateTasks {
    static final StructType KEY = new StructType().add("key", DataTypes.BinaryType);
    static final KeyStateEncoderSpec KEYS = new NoPrefixKeyStateEncoderSpec(KEY);
    static final StructType VALUE = new StructType().add("value", DataTypes.BinaryType);
    static final StructType ENTRY = new StructType()
        .add("shard", DataTypes.IntegerType).add("state_key", DataTypes.BinaryType).add("value", DataTypes.BinaryType);
    static final ClassTag ANY = scala.reflect.ClassTag$.MODULE$.Any();

    private StateTasks() {
    }

    /** Sets local properties of the jobs that this thread starts next: names and values in turns, between bytes of 0. */
    public static void setProperties(Object ofContext, String namesAndValues) {
        String[] each = namesAndValues.split("\0", -1);
        for (int i = 0; i < each.length; i += 2) {
            ((JavaSparkContext) ofContext).setLocalProperty(each[i], each[i + 1]);
        }
    }

    /**
     * Runs a batch, whose rows are `(output, rows, payload)`, with the stores as a version has them, and commits the next version.
     *
     * Returns under what name `StateServer` hands over the rows, each as bytes; the last of each task is what its store says of itself.
     */
    public static String run(Object produced, String folder, long version) {
        Dataset frame = (Dataset) produced;
        LogicalPlan plan = frame.queryExecution().analyzed();
        // What foreachBatch gives is a plan of which Spark needs to plan nothing.
        RDD rows = plan instanceof LogicalRDD ? ((LogicalRDD) plan).rdd() : frame.queryExecution().toRdd();
        SparkSession session = (SparkSession) frame.sparkSession();
        StatefulRdd tasks = new StatefulRdd(rows, Stores.of(session, folder), version);
        Object[] byTask = (Object[]) session.sparkContext().runJob(tasks, new AllRows(), ANY);
        ArrayList every = new ArrayList();
        for (int i = 0; i < byTask.length; i++) {
            every.addAll((List) byTask[i]);
        }
        return StateServer.keep(every.toArray());
    }

    /** Returns all entries of a version as a frame of `shard`, `state_key` and `value`; nothing is changed. */
    public static Object entries(Object ofSession, String folder, long version, int partitions) {
        SparkSession session = (SparkSession) ofSession;
        RDD numbers = session.sparkContext().range(0L, (long) partitions, 1L, partitions);
        EntriesOf entries = new EntriesOf(new Stores(session, UUID.randomUUID(), folder), version);
        RDD rows = new JavaRDD(numbers, ANY).mapPartitionsWithIndex(entries, true).rdd();
        return session.internalCreateDataFrame(rows, ENTRY, false);
    }

    /** Ends what this JVM has for state, which is no more asked for. */
    public static void stop() throws java.io.IOException {
        StateServer.stop();
    }
}

/** All rows of a task. Spark's `collect` has closures, and for each batch reads in their classes what they refer to. */
final class AllRows extends AbstractFunction2 implements Serializable {
    @Override
    public Object apply(Object task, Object rows) {
        ArrayList every = new ArrayList();
        for (Iterator each = (Iterator) rows; each.hasNext();) {
            every.add(each.next());
        }
        return every;
    }
}

/** What the stores of one run of a query have in common. */
final class Stores implements Serializable {
    static final String RUN_ID = "sql.streaming.runId";
    /** Spark knows stores by run, operator, partition and name: an operator of the user's in the same query has another name. */
    private static final String NAME = "shards";
    private static final int MOST_RUNS = 16;
    private static final Map runs = new LinkedHashMap();

    private final String folder;
    private final UUID run;
    final StateStoreConf conf;
    private final Broadcast hadoop;
    final transient StateStoreCoordinatorRef coordinator;

    Stores(SparkSession session, UUID run, String folder) {
        Configuration hadoop = session.sessionState().newHadoopConf();
        hadoop.set(RUN_ID, run.toString());  // where a store looks for it
        this.run = run;
        this.folder = folder;
        this.conf = new StateStoreConf(session.sessionState().conf(), scala.collection.immutable.Map$.MODULE$.empty());
        this.hadoop = session.sparkContext().broadcast(
            new SerializableConfiguration(hadoop), scala.reflect.ClassTag$.MODULE$.apply(SerializableConfiguration.class));
        this.coordinator = session.streams().stateStoreCoordinator();
    }

    /** Those of the query in whose batch this is called; Spark's coordinator forgets where they are with the end of the run. */
    static synchronized Stores of(SparkSession session, String folder) {
        String group = session.sparkContext().getLocalProperty("spark.jobGroup.id");
        UUID run;
        try {
            run = UUID.fromString(group);
        } catch (RuntimeException error) {  // no batch of a query
            return new Stores(session, UUID.randomUUID(), folder);
        }
        if (!runs.containsKey(run)) {
            runs.put(run, new Stores(session, run, folder));
            if (runs.size() > MOST_RUNS) {
                runs.remove(runs.keySet().iterator().next());
            }
        }
        return (Stores) runs.get(run);
    }

    StateStoreProviderId id(int partition) {
        return new StateStoreProviderId(new StateStoreId(folder, 0L, partition, NAME), run);
    }

    Configuration hadoop() {
        return ((SerializableConfiguration) hadoop.value()).value();
    }
}

/** Rows of tasks, beside each of which its store is open to Python. */
final class StatefulRdd extends RDD {
    private final Stores stores;
    private final long version;

    StatefulRdd(RDD rows, Stores stores, long version) {
        super(rows, StateTasks.ANY);
        this.stores = stores;
        this.version = version;
    }

    @Override
    public Iterator compute(Partition partition, TaskContext task) {
        StateServer.announce(task);
        Iterator rows = firstParent(StateTasks.ANY).iterator(partition, task);
        StateStore store = org.apache.spark.sql.execution.streaming.state.StateStore$.MODULE$.get(
            stores.id(partition.index()), StateTasks.KEY, StateTasks.VALUE, StateTasks.KEYS, version, Option.empty(), Option.empty(),
            false, stores.conf, stores.hadoop(), false);
        TaskStore own = new TaskStore(store);
        task.addTaskCompletionListener((TaskCompletionListener) own);
        task.addTaskFailureListener((TaskFailureListener) own);
        StateServer.open(task, own);
        return new ScoredRows(own, rows);
    }

    @Override
    public Partition[] getPartitions() {
        return firstParent(StateTasks.ANY).partitions();
    }

    /** Where the store is open from the batch before; that needs no asking where the driver runs tasks. */
    @Override
    public scala.collection.immutable.Seq getPreferredLocations(Partition partition) {
        if (sparkContext().isLocal()) {
            return scala.collection.immutable.Nil$.MODULE$;
        }
        return stores.coordinator.getLocation(stores.id(partition.index())).toList();
    }
}

/**
 * The store of a task, which is committed once, and let go of where the task fails before that. A listener of Spark's does so too,
 * but not while somebody else commits: this one is called before it, and waits.
 */
final class TaskStore implements TaskCompletionListener, TaskFailureListener {
    final StateStore store;
    private Throwable fault;
    private boolean hasEnded;

    TaskStore(StateStore store) {
        this.store = store;
    }

    /** Commits, in the thread that comes first: that of the task, or the one that has heard that nothing more is written. */
    synchronized void commit() {
        if (fault == null && !hasEnded && !store.hasCommitted()) {
            try {
                store.commit();
            } catch (Throwable error) {
                fault = error;
            }
        }
        if (fault != null) {
            org.apache.spark.unsafe.Platform.throwException(fault);
        }
    }

    @Override
    public synchronized void onTaskCompletion(TaskContext task) {
        if (!hasEnded && !store.hasCommitted()) {
            store.abort();
        }
        hasEnded = true;
    }

    @Override
    public void onTaskFailure(TaskContext task, Throwable error) {
        onTaskCompletion(task);
    }
}

/** The rows of a task as bytes, and behind them what its store says of itself once it is committed. */
final class ScoredRows extends AbstractIterator {
    private final TaskStore store;
    private final Iterator rows;
    private boolean isCommitted;

    ScoredRows(TaskStore store, Iterator rows) {
        this.store = store;
        this.rows = rows;
    }

    @Override
    public boolean hasNext() {
        return !isCommitted;
    }

    @Override
    public Object next() {
        if (rows.hasNext()) {
            InternalRow row = (InternalRow) rows.next();
            return packed(row.getUTF8String(0).getBytes(), row.getLong(1), row.getBinary(2));
        }
        isCommitted = true;
        StateServer.close(TaskContext.get());
        store.commit();
        return packed("state".getBytes(StandardCharsets.UTF_8), 0L, sizes().getBytes(StandardCharsets.UTF_8));
    }

    private String sizes() {
        StateStoreMetrics metrics = store.store.metrics();
        StringBuilder sizes = new StringBuilder("{\"memoryUsedBytes\":").append(metrics.memoryUsedBytes());
        for (Iterator each = metrics.customMetrics().iterator(); each.hasNext();) {
            Tuple2 metric = (Tuple2) each.next();
            sizes.append(",\"").append(((StateStoreCustomMetric) metric._1()).name()).append("\":").append(metric._2());
        }
        return sizes.append('}').toString();
    }

    private static byte[] packed(byte[] output, long rows, byte[] payload) {
        byte[] packed = new byte[1 + output.length + 8 + payload.length];
        ByteBuffer buffer = ByteBuffer.wrap(packed).order(java.nio.ByteOrder.LITTLE_ENDIAN);
        buffer.put((byte) output.length);
        buffer.put(output);
        buffer.putLong(rows);
        buffer.put(payload);
        return packed;
    }
}

/** Reads the stores of partitions as they are in the checkpoint, and leaves all as it is. */
final class EntriesOf implements Function2 {
    private final Stores stores;
    private final long version;

    EntriesOf(Stores stores, long version) {
        this.stores = stores;
        this.version = version;
    }

    /** As a run of its own: within one Spark decodes all values of a partition into one row, whoever reads it. */
    @Override
    public Object call(Object partition, Object ignored) {
        UUID run = UUID.randomUUID();
        Configuration hadoop = new Configuration(stores.hadoop());
        hadoop.set(Stores.RUN_ID, run.toString());
        StateStoreId store = stores.id(((Integer) partition).intValue()).storeId();
        StateStoreProvider provider = org.apache.spark.sql.execution.streaming.state.StateStoreProvider$.MODULE$.createAndInit(
            new StateStoreProviderId(store, run), StateTasks.KEY, StateTasks.VALUE, StateTasks.KEYS, false, stores.conf, hadoop,
            false, Option.empty());
        return new StoredEntries(provider, provider.getReadStore(version, Option.empty()));
    }
}

/** The entries of a store, which is closed with the task. */
final class StoredEntries implements java.util.Iterator, TaskCompletionListener {
    private final StateStoreProvider provider;
    private final ReadStateStore store;
    private final Iterator entries;

    StoredEntries(StateStoreProvider provider, ReadStateStore store) {
        this.provider = provider;
        this.store = store;
        this.entries = store.iterator("default");
        TaskContext.get().addTaskCompletionListener((TaskCompletionListener) this);
    }

    @Override
    public boolean hasNext() {
        return entries.hasNext();
    }

    @Override
    public Object next() {
        UnsafeRowPair entry = (UnsafeRowPair) entries.next();
        ByteBuffer key = ByteBuffer.wrap(entry.key().getBinary(0));
        int shard = key.getInt();
        byte[] rest = new byte[key.remaining()];
        key.get(rest);
        return new GenericInternalRow(new Object[] {Integer.valueOf(shard), rest, entry.value().getBinary(0)});
    }

    @Override
    public void remove() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void onTaskCompletion(TaskContext task) {
        store.abort();
        provider.close();
    }
}
