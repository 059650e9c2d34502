"""Files of the server outside of its own disk: an object store, or a folder on another disk.

base.py       the seam: five verbs on keys
folder.py     a folder, such as an NFS mount
remote.py     any address that fsspec knows: s3://, gs://, az://, webhdfs://
opening.py    from an address to one of the two
tables.py     which object holds what: it is there when its row is, not before
catalogue.py  those rows
reading.py    a file wherever it lies: on this disk, else in the storage
moving.py     the loop that sends files there, checks them, and takes away local copies and
              what nobody needs
"""
