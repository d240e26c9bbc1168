package buckets;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;

import scala.Option;
import scala.collection.Iterator;

/**
 * Spark's RocksDB store, with calls on a `binary -> binary` map state that are about many entries.
 *
 * A key of the map that begins with `MAGIC` is no key but such a call. What follows are keys, and an entry that is put under it
 * has their values; what is got under it are theirs. `buckets/spark/state_client.py` makes these calls. All else goes to
 * Spark's store as it is, and so does each entry of a call: what lies there, and in the checkpoint, is the same.
 */
public final class BulkStateStoreProvider extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option uniqueId, boolean forcesSnapshot, boolean loadsEmpty) {
        return BulkStateStore.over(super.getStore(version, uniqueId, forcesSnapshot, loadsEmpty));
    }

    @Override
    public StateStore getReadStore(long version, Option uniqueId) {
        return BulkStateStore.over((StateStore) super.getReadStore(version, uniqueId));
    }

    @Override
    public StateStore upgradeReadStoreToWriteStore(
            ReadStateStore store, long version, Option uniqueId, boolean forcesSnapshot) {
        ReadStateStore below = BulkStateStore.under(store);
        return BulkStateStore.over(super.upgradeReadStoreToWriteStore(below, version, uniqueId, forcesSnapshot));
    }
}

/** A store that looks at each call before it goes to the one below it. */
final class BulkStateStore implements InvocationHandler {
    private static final byte[] MAGIC = {(byte) 0xff, 'b', 'u', 'l', 'k', 0, 0, 1};
    private static final int ROW_BYTES = 128;

    private final StateStore below;

    private BulkStateStore(StateStore below) {
        this.below = below;
    }

    static StateStore over(StateStore store) {
        Class[] types = {StateStore.class};
        return (StateStore) Proxy.newProxyInstance(StateStore.class.getClassLoader(), types, new BulkStateStore(store));
    }

    static ReadStateStore under(ReadStateStore store) {
        return Proxy.isProxyClass(store.getClass()) ? ((BulkStateStore) Proxy.getInvocationHandler(store)).below : store;
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        ByteBuffer call = arguments != null && arguments[0] instanceof UnsafeRow ? callIn((UnsafeRow) arguments[0]) : null;
        if (call != null) {
            UnsafeRow[] keys = keys(((UnsafeRow) arguments[0]).getStruct(0, 1), call);
            if (method.getName().equals("get")) {
                return get(keys, (String) arguments[1]);
            } else if (method.getName().equals("put")) {
                put(keys, ((UnsafeRow) arguments[1]).getBinary(0), (String) arguments[2]);
                return null;
            } else if (method.getName().equals("remove")) {
                remove(keys, (String) arguments[1]);
                return null;
            }
        }
        try {
            return method.invoke(below, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    /** What follows MAGIC in a key of the map, which is the second field of the store's key; null where it is an entry's. */
    private static ByteBuffer callIn(UnsafeRow row) {
        byte[] key = row.numFields() == 2 && !row.isNullAt(1) ? row.getStruct(1, 1).getBinary(0) : null;
        if (key == null || key.length < MAGIC.length) {
            return null;
        }
        for (int i = 0; i < MAGIC.length; i++) {
            if (key[i] != MAGIC[i]) {
                return null;
            }
        }
        return littleEndian(key, MAGIC.length);
    }

    private UnsafeRow get(UnsafeRow[] keys, String family) {
        byte[][] values = new byte[keys.length][];
        Iterator rows = keys.length > 0 ? below.multiGet(keys, family) : null;
        for (int i = 0; i < keys.length; i++) {
            UnsafeRow row = (UnsafeRow) rows.next();
            values[i] = row == null ? new byte[0] : row.getBinary(0);
        }
        return row(joined(values));
    }

    private void put(UnsafeRow[] keys, byte[] joinedValues, String family) {
        byte[][] values = parted(littleEndian(joinedValues, 0));
        for (int i = 0; i < keys.length; i++) {
            below.put(keys[i], row(values[i]), family);
        }
    }

    private void remove(UnsafeRow[] keys, String family) {
        for (int i = 0; i < keys.length; i++) {
            below.remove(keys[i], family);
        }
    }

    /** The rows under which the store below has keys of the map, of one grouping key. */
    private static UnsafeRow[] keys(UnsafeRow grouping, ByteBuffer joined) {
        byte[][] keys = parted(joined);
        UnsafeRow[] rows = new UnsafeRow[keys.length];
        UnsafeRowWriter writer = new UnsafeRowWriter(2, ROW_BYTES);
        for (int i = 0; i < keys.length; i++) {
            writer.reset();
            writer.zeroOutNullBytes();
            writer.write(0, grouping);
            writer.write(1, row(keys[i]));
            rows[i] = writer.getRow().copy();
        }
        return rows;
    }

    private static UnsafeRow row(byte[] field) {
        UnsafeRowWriter writer = new UnsafeRowWriter(1, field.length + 8);
        writer.reset();
        writer.zeroOutNullBytes();
        writer.write(0, field);
        return writer.getRow();
    }

    /** How many byte strings there are, the length of each, and the bytes of all. */
    private static byte[] joined(byte[][] strings) {
        int bytes = 4 * (1 + strings.length);
        for (int i = 0; i < strings.length; i++) {
            bytes += strings[i].length;
        }
        ByteBuffer joined = littleEndian(new byte[bytes], 0);
        joined.putInt(strings.length);
        for (int i = 0; i < strings.length; i++) {
            joined.putInt(strings[i].length);
        }
        for (int i = 0; i < strings.length; i++) {
            joined.put(strings[i]);
        }
        return joined.array();
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

    private static ByteBuffer littleEndian(byte[] bytes, int from) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        buffer.position(from);
        return buffer;
    }
}
