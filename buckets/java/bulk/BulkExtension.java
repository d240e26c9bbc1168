package buckets;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;

import scala.Enumeration;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * An extension of a Spark session with which a stateful stage keeps its state in `BulkStateStoreProvider`.
 *
 * Spark lets this kind of stage have its own provider alone, by name, and writes the name into the checkpoint. So the name
 * stays, and stands for ours just while Spark makes the stage's tasks: a session without this extension goes on
 * with the same checkpoint.
 */
public final class BulkExtension extends AbstractFunction1 {
    @Override
    public Object apply(Object extensions) {
        ((SparkSessionExtensions) extensions).injectColumnar(new AbstractFunction1() {
            @Override
            public Object apply(Object session) {
                return new LastRule();
            }
        });
        return BoxedUnit.UNIT;
    }
}

/** What is done to a plan when Spark has put into its stages which state they have. */
final class LastRule extends ColumnarRule {
    @Override
    public Rule preColumnarTransitions() {
        return new Rule() {
            @Override
            public TreeNode apply(TreeNode plan) {
                return plan.transformUp(new OfOurs());
            }
        };
    }
}

/** Puts our stage in the place of Spark's. */
final class OfOurs extends AbstractPartialFunction {
    @Override
    public boolean isDefinedAt(Object node) {
        return node.getClass() == TransformWithStateInPySparkExec.class;
    }

    @Override
    public Object applyOrElse(Object node, scala.Function1 otherwise) {
        return isDefinedAt(node) ? new BulkStage((TransformWithStateInPySparkExec) node) : otherwise.apply(node);
    }
}

/** Spark's stage, with our provider. */
final class BulkStage extends TransformWithStateInPySparkExec {
    private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";

    BulkStage(TransformWithStateInPySparkExec of) {
        this(of, of.child(), of.initialState());
    }

    private BulkStage(TransformWithStateInPySparkExec of, SparkPlan child, SparkPlan initialState) {
        super(
            of.functionExpr(), of.groupingAttributes(), of.output(), of.outputMode(), of.timeMode(), of.stateInfo(),
            of.batchTimestampMs(), of.prevBatchTimestampMs(), of.eventTimeWatermarkForLateEvents(),
            of.eventTimeWatermarkForEviction(), of.userFacingDataType(), child, of.isStreaming(),
            of.hasInitialState(), initialState, of.initialStateGroupingAttrs(), of.initialStateSchema());
    }

    @Override
    public org.apache.spark.rdd.RDD doExecute() {
        SQLConf conf = session().sessionState().conf();
        String before = conf.getConfString(PROVIDER);
        try {
            return super.doExecute();
        } finally {
            conf.setConfString(PROVIDER, before);
        }
    }

    /** Called by `doExecute` before it reads which provider there is. */
    @Override
    public void validateStateStoreProvider(boolean isStreaming) {
        super.validateStateStoreProvider(isStreaming);
        session().sessionState().conf().setConfString(PROVIDER, BulkStateStoreProvider.class.getName());
    }

    /** At once, and not by way of a stage of Spark's: each that is made resolves an encoder, which is 2 ms. */
    @Override
    public TransformWithStateInPySparkExec withNewChildrenInternal(SparkPlan left, SparkPlan right) {
        return new BulkStage(this, left, right);
    }

    /** No stage of Spark's is equal to it: Spark keeps a node if what comes in its place is equal. */
    @Override
    public boolean canEqual(Object other) {
        return other instanceof BulkStage;
    }
}
