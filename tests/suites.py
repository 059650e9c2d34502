"""Which tests are in a suite of their own; the rest are in `make test`, or bear a marker. See
docs/internals/testing.md."""

from __future__ import annotations

PLACES = {
    "frameworks": (
        "frameworks",
        "client/test_hyperopt_real.py",
        "e2e/test_storage.py",
        "server/mlflow/test_mlflow_answers.py",
        "server/mlflow/test_mlflow_clients.py",
        "server/mlflow/test_mlflow_models.py",
        "server/mlflow/test_mlflow_registry.py",
        "train/test_cut_keras.py",
    ),
    "browser": ("web", "server/sessions/test_login_page.py"),
    "engines": (
        "e2e/test_kubernetes.py",
        "e2e/test_kubernetes_deploy.py",
        "e2e/test_kubernetes_unshared.py",
        "e2e/test_ray.py",
        "e2e/test_slurm.py",
        "engines/kubernetes/test_kube_contract.py",
        "engines/ray/test_ray_contract.py",
        "engines/slurm/test_slurm_contract.py",
        "test_engine_benchmarks.py",
    ),
    "gpu": (
        "train/test_cuda_cut.py",
        "train/test_cuda_mesh.py",
        "train/test_cuda_pipelines.py",
        "train/test_cuda_sharding.py",
        "train/test_cuda_strategies.py",
        "train/test_pipedream_cuda.py",
    ),
    "training": (
        "cli/test_cli_bench.py",
        "cli/test_cli_plan.py",
        "examples/test_strategies_examples.py",
        "e2e/test_train_members.py",
        "train/test_checkpoint_faults_training.py",
        "train/test_collective_failures.py",
        "train/test_elastic_processes.py",
        "train/test_elastic_merging.py",
        "train/test_hybrid_faults.py",
        "train/test_mesh_faults.py",
        "train/test_outer_losses.py",
        "train/test_pipedream_faults.py",
        "train/test_pipeline_faults.py",
        "train/test_pipeline_processes.py",
        "train/test_plan_auto.py",
        "train/test_server_filters.py",
        "train/test_train_gossip_faults.py",
        "train/test_train_group.py",
        "train/test_train_hogwild.py",
        "train/test_train_nursery.py",
        "train/test_train_server_faults.py",
        "train/test_train_transport.py",
    ),
    "soak": (
        "e2e/test_level_1.py",
        "faults/test_database_away.py",
        "faults/test_many_at_once.py",
        "faults/test_slow_clients.py",
        "faults/test_studies_killed.py",
        "faults/test_upgrades.py",
        "faults/test_wall_clocks.py",
        "scheduler/simulate/test_sanity.py",
        "server/usage/test_usage_preempted.py",
        "server/usage/test_usage_server.py",
    ),
}
"""Files and folders."""
FIXTURES = {
    "engines": {"cluster", "kubernetes"},  # a real Slurm, Ray or Kubernetes
    "frameworks": {"newest", "older", "real", "s3", "tensorboard"},  # MLflow's, S3's
}
