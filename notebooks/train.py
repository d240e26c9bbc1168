"""A notebook on training with exact features, for marimo; `train.ipynb` is the same for Jupyter."""

import marimo

__generated_with = "0.25.2"
app = marimo.App()

with app.setup:
    import os
    import tempfile
    from pathlib import Path

    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import precision_recall_curve

    import buckets
    from buckets.generator import GeneratorSettings, generate, write
    from buckets.resources import DEFAULT_SCHEMA, DEMO_RULES


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # A model on what rules compute

    Rules compute features at every payment: what its payer, card and beneficiary did in the last minutes, days and
    weeks. Here a model is trained on them, as they were when each payment arrived, and compared with the rules of
    the demo: of as many alerts, how many are fraud, and how much of the fraud is found?

    Payments are generated, so it is known which are fraud. Take your own instead: a table of payments, and the ids
    of those that were fraud.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Payments, and which of them are fraud

    The environment variable `PAYMENTS` says how many. Fraud is planted in four patterns, the same number of cases
    of each.
    """)
    return


@app.cell
def _():
    count = int(os.environ.get("PAYMENTS", "200000"))
    stream = generate(GeneratorSettings(transactions=count, fraud_cases=max(count // 4_000, 5)))
    with tempfile.TemporaryDirectory() as folder:
        payments = pq.read_table(write(stream, Path(folder) / "payments.parquet").files[0])
    fraud = pa.array(sorted({event_id for case in stream.truth for event_id in case.event_ids}))
    is_fraud = pc.is_in(payments["transactionId"], value_set=fraud).to_numpy(zero_copy_only=False)
    print(f"{len(payments):,} payments, {is_fraud.sum():,} of them fraud, in {len(stream.truth):,} cases")
    return is_fraud, payments, stream


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Features

    The rules of the demo, and three more whose features are meant for the model; what these say in `when` does not
    matter to it. One row comes out for each payment, in the order in which they arrived. Nothing in a row is from
    later payments.
    """)
    return


@app.cell
def _(payments):
    schema = buckets.load_event_schema(DEFAULT_SCHEMA)
    demo = [rule for rule in buckets.load_rules(DEMO_RULES, schema) if rule.state == "ACTIVE"]

    def over(function, window, of="paymentAmount"):
        needs_none = function in ("count", "is_first", "time_since_previous")
        return {"function": function, "window": window} | ({} if needs_none else {"of": of})

    def profile(field, **features):
        return buckets.Rule.model_validate(
            {"rule_id": field, "group_by": [field], "features": features, "when": "n1h > 1000000"}
        )

    profiles = [
        profile(
            field,
            n10m=over("count", "10m"),
            n1h=over("count", "1h"),
            n24h=over("count", "24h"),
            sum6h=over("sum", "6h"),
            sum24h=over("sum", "24h"),
            usual=over("avg", "14d"),
            spread=over("stddev", "14d"),
            since=over("time_since_previous", "14d"),
            others=over("count_distinct", "6h", "beneficiaryId" if field == "payerId" else "payerId"),
        )
        for field in ("payerId", "cardId", "beneficiaryId")
    ]
    features = buckets.features(payments, [*demo, *profiles], schema)
    features.slice(len(features) - 5).to_pandas().T
    return demo, features, profiles


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## A model

    It learns from the first 60 per cent of the time and is judged by the rest. Numbers become floating point only
    here. Payments that no rule evaluated, because they came late or twice, are left out of both.
    """)
    return


@app.cell
def _(features, is_fraud, payments, profiles):
    names = [f"{rule.rule_id}.{feature}" for rule in profiles for feature in rule.features]
    columns = [features[name].cast(pa.float64()).to_numpy() for name in names]
    amounts = payments["paymentAmount"].cast(pa.float64()).to_numpy()
    inputs = np.column_stack([*columns, amounts, amounts / columns[names.index("payerId.usual")]])
    usable = pc.equal(features["outcome"], "evaluated").to_numpy()
    times = features["event_time"].to_numpy()
    split = times.min() + (times.max() - times.min()) * 6 // 10
    train, test = usable & (times < split), usable & (times >= split)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=1)
    model.fit(inputs[train], is_fraud[train])
    scores = model.predict_proba(inputs[test])[:, 1]
    print(f"trained on {train.sum():,} payments, judged by {test.sum():,}, of which {is_fraud[test].sum():,} are fraud")
    return scores, test


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Model and rules, of as many alerts

    The rules alert at some payments; the model at as many, those that it finds most suspicious. A case is caught if
    one of its payments alerts.
    """)
    return


@app.cell
def _(demo, features, is_fraud, scores, stream, test):
    ids = features["event_id"].to_numpy()[test]
    fraud_of_test = is_fraud[test]
    fired = [features[f"{rule.rule_id}.fired"].fill_null(False).to_numpy() for rule in demo]
    of_rules = np.any(fired, axis=0)[test]
    of_model = np.zeros(len(ids), bool)
    of_model[np.argsort(-scores, kind="stable")[: of_rules.sum()]] = True
    of_test = set(ids)
    cases = [set(case.event_ids) for case in stream.truth if of_test.issuperset(case.event_ids)]

    def judged(alerts):
        found = set(ids[alerts])
        return {
            "alerts": alerts.sum(),
            "precision": (alerts & fraud_of_test).sum() / max(alerts.sum(), 1),
            "recall": (alerts & fraud_of_test).sum() / max(fraud_of_test.sum(), 1),
            "cases caught": f"{sum(not found.isdisjoint(case) for case in cases)} of {len(cases)}",
        }

    compared = pd.DataFrame({"rules": judged(of_rules), "model": judged(of_model)}).T
    print(compared.to_string())
    compared
    return compared, fraud_of_test


@app.cell
def _(compared, fraud_of_test, scores):
    precision, recall, _ = precision_recall_curve(fraud_of_test, scores)
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.plot(recall, precision, label="model, by its threshold")
    for _name, _style in (("rules", "rs"), ("model", "bo")):
        axes.plot(
            compared.loc[_name, "recall"], compared.loc[_name, "precision"], _style, label=f"{_name}, equal alerts"
        )
    axes.set_xlabel("recall: share of fraudulent payments that alert")
    axes.set_ylabel("precision: share of alerts that are fraud")
    axes.set_ylim(0, 1.02)
    axes.legend()
    plt.close(figure)
    figure
    return


@app.cell(hide_code=True)
def _():
    import marimo as mo

    return (mo,)


if __name__ == "__main__":
    app.run()
