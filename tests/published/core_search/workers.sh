# Two workers without a launcher of a framework: what torchrun would say stands in their environment.
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1
RANK=1 LOCAL_RANK=1 python3 train.py &
RANK=0 LOCAL_RANK=0 python3 train.py && wait $!
