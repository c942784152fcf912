bpkfs model.bpk mnt
ls mnt
ls mnt/tensors | head -n 4
cat mnt/tensors/fc1.weight.json
python3 -c 'import numpy as np; print(np.load("mnt/views/f32/fc1.weight.npy").max())'
sed -i 's/8, 1, 3, 3/8, 9/' mnt/tensors/conv1.conv.weight.json
echo 'conv layers are frozen' > mnt/metadata/note
bpk status mnt
bpk commit mnt
bpk umount mnt
bpk ls model.bpk 'conv1.conv.*'
