"""transformers' Trainer on a tiny random model, with a fast tokenizer that is built here."""

import os
from collections.abc import Callable

import material
import torch
from datasets import Dataset as Table
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

WORDS = ("coal", "iron", "steam", "wheel", "rail", "track", "smoke", "whistle", "bridge", "tunnel")


def sentence(index: int) -> str:
    return " ".join(
        WORDS[(index * 7 + k * (1 + index % 4)) % len(WORDS)] for k in range(3 + index % 9)
    )


def build_tokenizer() -> PreTrainedTokenizerFast:
    """By hand: a trained vocabulary comes out of a hash map, in another order each time."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


class Sentences(Dataset):
    """Tokenized when asked for, so in the workers too."""

    def __init__(self, tokenizer, num_samples: int) -> None:
        self.tokenizer, self.num_samples = tokenizer, num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int):
        return {**self.tokenizer(sentence(index)), "labels": index % 4}


class Telling(Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        material.tell("loss", self.state.global_step, loss)
        return loss


def table_of(tokenizer, num_samples: int) -> Table:
    """The same sentences, tokenized beforehand."""
    rows = [{**tokenizer(sentence(index)), "labels": index % 4} for index in range(num_samples)]
    return Table.from_list(rows)


def trainer_of(tokenizer, dataset_of: Callable, num_epochs: int) -> Telling:
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    set_seed(7)
    arguments = TrainingArguments(
        "out",
        num_train_epochs=num_epochs,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        dataloader_num_workers=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Telling(
        BertForSequenceClassification(
            BertConfig(vocab_size=16, intermediate_size=16, num_labels=4, **size)
        ),
        arguments,
        train_dataset=dataset_of(tokenizer, 120),
        eval_dataset=dataset_of(tokenizer, 40),
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.remove_callback(PrinterCallback)  # it prints times
    return trainer


def main() -> None:
    os.environ.pop("TOKENIZERS_PARALLELISM", None)  # so that tokenizers sees to forks itself
    material.begin()
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer()
    tokenizer([sentence(k) for k in range(500)])  # here first: its threads are up at the fork
    trainer_of(tokenizer, Sentences, 1).train()
    second = trainer_of(tokenizer, Sentences, 2)
    second.train(resume_from_checkpoint=True)
    material.tell("evaluated", second.evaluate()["eval_loss"])
    trainer_of(tokenizer, table_of, 1).train()
    material.end()


if __name__ == "__main__":
    main()
