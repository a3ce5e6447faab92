"""Share groups (KIP-932) in the group coordinator: who is a member, and who reads which partitions.

Members of a share group may read the same partitions. What becomes of single records is for the
leaders of partitions (`strandline.sharing`); here it is known only for which partitions a share
coordinator keeps a state.
"""
