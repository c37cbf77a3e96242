"""Datasets, transformations of datasets, and iterators.

Importing this registers the family's kernels.  What a dataset is says `aexec/resources/datasets/dataset.py`.
"""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
