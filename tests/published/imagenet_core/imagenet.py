"""Images sorted into classes by a small residual network, in two processes that share each batch."""

import argparse
import logging
import os
import pathlib
import shutil

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import determined as det


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())

    def forward(self, x):
        return x + self.layers(x)


def images(count, seed):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=draw)
    pictures = torch.rand(count, 3, 8, 8, generator=draw)
    for picture, label in zip(pictures, labels):
        picture[:, 2 * label : 2 * label + 2] += 1
    return TensorDataset(pictures, labels)


def save_checkpoint(core_context, state, epoch, is_best):
    with core_context.checkpoint.store_path({"steps_completed": epoch, "is_best": is_best}) as (path, uuid):
        torch.save(state, path / "checkpoint.pth.tar")
        if is_best:
            shutil.copyfile(path / "checkpoint.pth.tar", path / "model_best.pth.tar")


def validate(loader, model, criterion, core_context, epoch):
    model.eval()
    loss = correct = count = 0.0
    with torch.no_grad():
        for pictures, labels in loader:
            output = model(pictures)
            loss += criterion(output, labels).item() * len(labels)
            correct += (output.argmax(1) == labels).sum().item()
            count += len(labels)
    sums = torch.tensor([loss, correct, count])
    dist.all_reduce(sums)
    loss, acc1 = (sums[0] / sums[2]).item(), (100 * sums[1] / sums[2]).item()
    if core_context.distributed.rank == 0:
        core_context.train.report_validation_metrics(steps_completed=epoch + 1, metrics={"loss": loss, "acc1": acc1})
    return acc1


def main(core_context, args, info):
    hparams = info.trial.hparams
    torch.manual_seed(info.trial.trial_seed)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Block(8), nn.Flatten(), nn.Linear(8 * 64, 4))
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), hparams["lr"], momentum=hparams["momentum"])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    start_epoch, best_acc1 = 0, 0.0
    if info.latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
            state = torch.load(pathlib.Path(path) / "checkpoint.pth.tar", weights_only=True)
        start_epoch, best_acc1 = state["epoch"], state["best_acc1"]
        model.load_state_dict(state["state_dict"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
    train_set, val_set = images(128, 1), images(64, 2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=args.batch_size // dist.get_world_size(), sampler=sampler)
    held_out = DataLoader(val_set, batch_size=32, sampler=DistributedSampler(val_set, shuffle=False))
    for op in core_context.searcher.operations():
        for epoch in range(start_epoch, op.length):
            sampler.set_epoch(epoch)
            model.train()
            for pictures, labels in loader:
                loss = criterion(model(pictures), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if core_context.distributed.rank == 0:
                core_context.train.report_training_metrics(steps_completed=epoch + 1, metrics={"loss": loss.item()})
            acc1 = validate(held_out, model, criterion, core_context, epoch)
            scheduler.step()
            is_best, best_acc1 = acc1 > best_acc1, max(acc1, best_acc1)
            if core_context.distributed.rank == 0:
                op.report_progress(epoch + 1)
                state = {
                    "epoch": epoch + 1,
                    "state_dict": model.state_dict(),
                    "best_acc1": best_acc1,
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                }
                save_checkpoint(core_context, state, epoch + 1, is_best)
            if core_context.preempt.should_preempt():
                return
        if core_context.distributed.rank == 0:
            op.report_completed(acc1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--dist-backend", default="nccl")
    args = parser.parse_args()
    assert os.environ["WORLD_SIZE"] == "2"
    dist.init_process_group(args.dist_backend)
    distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as core_context:
        main(core_context, args, det.get_cluster_info())
    dist.destroy_process_group()
