"""A notebook on features from history to a live stream, for marimo; `live.ipynb` is the same for Jupyter."""

import marimo

__generated_with = "0.25.2"
app = marimo.App()

with app.setup:
    import os
    import tempfile
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from sklearn.ensemble import HistGradientBoostingClassifier

    import buckets.spark as bs
    from buckets.generator import GeneratorSettings, generate, write
    from buckets.java.jars import jar_paths
    from buckets.resources import DEFAULT_SCHEMA


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # From history to live, with the same features

    A model learns from features of years of payments, and then needs them for each new payment while it comes. Here
    both are computed by the same rules in the same Spark session: `bs.features` over a Delta table of history, and
    `bs.stream` over what is appended to it.
    """)
    return


@app.cell
def _():
    folder = Path(tempfile.mkdtemp())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jar_paths())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    return folder, spark


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Payments

    Generated, with planted fraud; the environment variable `PAYMENTS` says how many. `n` is the order in which they
    arrived. The first 70 per cent are history.
    """)
    return


@app.cell
def _(folder, spark):
    count = int(os.environ.get("PAYMENTS", "50000"))
    stream = generate(GeneratorSettings(transactions=count, fraud_cases=max(count // 2_000, 5)))
    table = pq.read_table(write(stream, folder / "payments.parquet").files[0])
    fraud = pa.array(sorted({event_id for case in stream.truth for event_id in case.event_ids}))
    table = table.append_column("n", pa.array(range(len(table))))
    table = table.append_column("is_fraud", pc.is_in(table["transactionId"], value_set=fraud))
    pq.write_table(table, folder / "numbered.parquet")
    payments = spark.read.parquet(str(folder / "numbered.parquet"))
    end = len(table) * 7 // 10
    payments.where(F.col("n") < end).write.format("delta").save(str(folder / "history"))
    return end, payments


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Features of history, and a model

    `bs.features` puts the features of each payment beside it, as they were when it arrived.
    """)
    return


@app.cell
def _(folder, spark):
    schema = bs.schema(str(DEFAULT_SCHEMA))

    def over(function, window, of="paymentAmount"):
        return {"function": function, "window": window} | ({} if function == "count" else {"of": of})

    rules = bs.rules(
        [
            {
                "rule_id": field,
                "group_by": [field],
                "features": {
                    "n1h": over("count", "1h"),
                    "n24h": over("count", "24h"),
                    "sum6h": over("sum", "6h"),
                    "usual": over("avg", "14d"),
                },
                "when": "n1h > 1000000",
            }
            for field in ("payerId", "cardId", "beneficiaryId")
        ]
    )
    names = [f"{rule.rule_id}.{feature}" for rule in rules for feature in rule.features]
    history = spark.read.format("delta").load(str(folder / "history"))
    features = bs.features(history, rules, schema, order_by=["n"])

    def numbers(frame):
        """What the model takes of rows with features."""
        wanted = [*(f"`{name}`" for name in names), "paymentAmount"]
        return frame.select(*(F.col(name).cast("double") for name in wanted)).toPandas().to_numpy()

    usable = features.where("outcome = 'evaluated'").orderBy("n").persist()
    model = HistGradientBoostingClassifier(max_iter=60, random_state=1)
    model.fit(numbers(usable), usable.select("is_fraud").toPandas()["is_fraud"])
    print(f"trained on {usable.count():,} payments, {usable.where('is_fraud').count():,} of them fraud")
    return model, names, numbers, rules, schema


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## The same features live

    The stream reads the table from its beginning, so its windows reach back into history, and goes on with what is
    appended. Each batch has the payments with their features. Here the model gives each new payment a score;
    `write_delta` appends a batch once, also if it is tried again.
    """)
    return


@app.cell
def _(end, folder, model, numbers, payments, rules, schema, spark):
    def scored(batch):
        """Score the new payments of a batch, and keep them."""
        rows = batch.features.where((F.col("n") >= end) & (F.col("outcome") == "evaluated")).orderBy("n").persist()
        if rows.count():
            scores = rows.select("n").toPandas().assign(score=model.predict_proba(numbers(rows))[:, 1])
            batch.write_delta(rows.join(spark.createDataFrame(scores), "n"), folder / "scored")

    payments.where(F.col("n") >= end).write.format("delta").mode("append").save(str(folder / "history"))
    arriving = spark.readStream.format("delta").load(str(folder / "history"))
    live = bs.stream(arriving, rules, schema, checkpoint=folder / "checkpoint", order_by=["n"])
    query = live.for_each_batch(scored).start(available_now=True)
    query.awaitTermination()
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## They are the same

    What the stream has computed is, to the last digit, what `bs.features` computes over all payments.
    """)
    return


@app.cell
def _(end, folder, names, payments, rules, schema, spark):
    kept = spark.read.format("delta").load(str(folder / "scored"))
    again = bs.features(payments, rules, schema, order_by=["n"])
    again = again.where((F.col("n") >= end) & (F.col("outcome") == "evaluated"))
    columns = ["n", *(f"`{name}`" for name in names)]
    different = kept.select(columns).exceptAll(again.select(columns)).count() + abs(kept.count() - again.count())
    suspicious = kept.orderBy(F.desc("score")).limit(100)
    found = suspicious.where("is_fraud").count()
    print(f"live: {kept.count():,} payments, {different} different, {found} of the 100 most suspicious are fraud")
    suspicious.select("transactionId", "score", "is_fraud").limit(5).toPandas()
    return


@app.cell(hide_code=True)
def _():
    import marimo as mo

    return (mo,)


if __name__ == "__main__":
    app.run()
