import torch

from determined import pytorch


class T(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 2))
        self.model = context.wrap_model(net)
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), lr=1e-2))

    def data(self, batch_size):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
        return pytorch.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=batch_size)

    def build_training_data_loader(self):
        return self.data(self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return self.data(10)

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])}
