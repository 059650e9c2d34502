"""Job files of other systems become ours, with a report of what does not map.

    for job in convert(text, "tfjob.yaml"):
        print(render(job))

Reading order: `base` (the words), `trainjob` (the smallest importer, the lesson), `pods` (what
Kubernetes kinds share), `kubeflow_v1`, `determined`, `slurm_options` and `sbatch`, `registry` (how
one is chosen), `jobtext` (how a job is written down).
"""
