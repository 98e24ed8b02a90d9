"""Every case of docs/compatibility.md, in the order of the page. What was found stands on the page."""

from tests.frameworks.sides import Case

_LAUNCH = ("-m", "accelerate.commands.launch")
_TWO_RANKS = (
    *_LAUNCH,
    "--multi_gpu",  # means several processes; the script's Accelerator(cpu=True) makes them gloo's
    *("--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"),
    *("--mixed_precision", "no", "--dynamo_backend", "no"),
)

CASES = (
    Case(
        framework="Lightning",
        what="`fit` with a DataModule, sanity check, `val_check_interval`, checkpoint; `fit` from `ckpt_path`",
        script="lightning_fit.py",
        arguments=("resume",),
        needs=("lightning",),
    ),
    Case(
        framework="Lightning",
        what="`overfit_batches`, `limit_train_batches`, `limit_val_batches`, `validate`; once with `num_workers=0`",
        script="lightning_fit.py",
        arguments=("limits",),
        needs=("lightning",),
    ),
    Case(
        framework="Lightning",
        what="`CombinedLoader` of two loaders in three modes",
        script="lightning_fit.py",
        arguments=("combined",),
        needs=("lightning",),
    ),
    Case(
        framework="Lightning",
        what='`strategy="ddp"`, two ranks on gloo, `use_distributed_sampler`',
        script="lightning_fit.py",
        arguments=("ddp",),
        needs=("lightning",),
    ),
    Case(
        framework="Accelerate",
        what="`prepare`, gradient accumulation, `skip_first_batches`, `gather_for_metrics`; by `accelerate launch --cpu`",
        script="accelerate_loop.py",
        arguments=("plain",),
        needs=("accelerate",),
        launcher=(*_LAUNCH, "--cpu", "--num_processes", "2"),
    ),
    Case(
        framework="Accelerate",
        what="the same with `use_stateful_dataloader`",
        script="accelerate_loop.py",
        arguments=("stateful",),
        needs=("accelerate", "torchdata"),
    ),
    Case(
        framework="Accelerate",
        what="two ranks on gloo, `dispatch_batches=False`",
        script="accelerate_loop.py",
        arguments=("plain",),
        needs=("accelerate",),
        launcher=_TWO_RANKS,
    ),
    Case(
        framework="Accelerate",
        what="two ranks on gloo, `dispatch_batches=True`",
        script="accelerate_loop.py",
        arguments=("dispatch",),
        needs=("accelerate",),
        launcher=_TWO_RANKS,
    ),
    Case(
        framework="Accelerate",
        what="two ranks on gloo, `split_batches`, seedable sampler",
        script="accelerate_loop.py",
        arguments=("split",),
        needs=("accelerate",),
        launcher=_TWO_RANKS,
    ),
    Case(
        framework="Accelerate",
        what="two ranks on gloo, an iterable dataset (dispatched unless told otherwise)",
        script="accelerate_loop.py",
        arguments=("iterable",),
        needs=("accelerate",),
        launcher=_TWO_RANKS,
    ),
    Case(
        framework="transformers",
        what="`Trainer` with evaluation and resume, `DataCollatorWithPadding`; a fast tokenizer that the workers use, and a table of HF `datasets`",
        script="transformers_trainer.py",
        needs=("transformers", "accelerate", "datasets"),
    ),
    Case(
        framework="timm",
        what="`create_dataset`, `create_loader(use_prefetcher=False)`, RandAugment, `Mixup`; `use_multi_epochs_loader`",
        script="timm_loader.py",
        needs=("timm",),
    ),
    Case(
        framework="MONAI",
        what="NIfTI volumes, four patches each, `list_data_collate`; `DataLoader` with `CacheDataset` and `PersistentDataset`; `ThreadDataLoader`, also with `use_thread_workers`",
        script="monai_volumes.py",
        needs=("monai", "nibabel"),
    ),
    Case(
        framework="PyTorch Geometric",
        what="`InMemoryDataset`, `DataLoader` (once with `num_workers=0`), `DynamicBatchSampler`, `DataListLoader`; `NodeLoader` (the base of `NeighborLoader`) with a sampler of its own, `RandomNodeLoader`",
        script="geometric_graphs.py",
        needs=("torch_geometric",),
    ),
    Case(
        framework="fastai",
        what="`DataBlock` of JPEG photographs, `Learner.fit`, `get_preds`; once with `num_workers=0`",
        script="fastai_images.py",
        needs=("fastai",),
    ),
    Case(
        framework="Ultralytics",
        what="`InfiniteDataLoader`, a dataset that changes, `reset`; once with `num_workers=0`",
        script="ultralytics_infinite.py",
        arguments=("package",),
        needs=("ultralytics", "opencv-python-headless"),
    ),
    Case(
        framework="torch",
        what="a class like Ultralytics' older `InfiniteDataLoader`: its iterator is made in `__init__`",
        script="ultralytics_infinite.py",
        arguments=("own",),
        needs=("torch",),
    ),
    Case(
        framework="torchvision",
        what="the reference script: repeated augmentation, `transforms.v2`, MixUp or CutMix while collating; `ImageFolder`, `random_split`, `ConcatDataset`, `Subset`, `default_convert`",
        script="torchvision_reference.py",
        needs=("torchvision",),
    ),
    Case(
        framework="torchdata",
        what="`StatefulDataLoader`, stopped in mid-epoch and resumed",
        script="torchdata_stateful.py",
        needs=("torchdata",),
    ),
    Case(
        framework="webdataset",
        what="`WebDataset` of tar shards under torch's `DataLoader`; `WebLoader`, shuffled across workers",
        script="webdataset_shards.py",
        needs=("webdataset",),
    ),
    Case(
        framework="HF datasets",
        what="a table of images, `with_format`, `set_transform`; `IterableDataset` of four shards with a shuffle buffer, `set_epoch`; `streaming=True` from JSON lines",
        script="datasets_tables.py",
        needs=("datasets",),
    ),
    Case(
        framework="litdata",
        what="`StreamingDataset` under torch's `DataLoader`; `StreamingDataLoader`",
        script="litdata_stream.py",
        needs=("litdata",),
    ),
    Case(
        framework="MosaicML Streaming",
        what="`StreamingDataset` under torch's `DataLoader`",
        script="streaming_shards.py",
        needs=("mosaicml-streaming",),
    ),
)
