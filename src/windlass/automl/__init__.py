"""Models for a table: what runs inside the jobs of `windlass automl`, and what its models are.

table.py      a CSV file, what its columns are, which task its target asks for
families.py   kinds of models, their parameters, and the fixed pipeline before each
net.py        a small network: trained with torch, predicting with numpy
look.py       the first job: is the table fit for this, which families are installed here
trial.py      one trial: cross-validation, rows held out, a model
predict.py    a finished model: load it, predict
shipping.py   all of this as a folder that travels with jobs and models

Jobs run in the user's Python, which need not have Windlass: these modules travel with them, as the
package `windlass_automl`, and import nothing but each other, numpy and scikit-learn.
"""
