from .open_records import OpenRecords as OpenRecords
